"""What every screener must do, those of others included, and each of ours on a case worked by hand."""

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff import registry, screeners
from dataeff.contest import Contest, Job, Result
from dataeff.errors import FormatError, PlanError
from dataeff.manifest import fingerprint
from dataeff.rungs import Rung, cost_share, ladder
from dataeff.screeners.asha import Asha
from dataeff.screeners.bandit import Bandit, pulls_by_phase
from dataeff.screeners.full_grid import FullGrid
from dataeff.screeners.hyperband import Hyperband
from dataeff.screeners.small_first import SmallFirst
from dataeff.screeners.successive_halving import SuccessiveHalving
from tests.oracle.screener_runs import run

NAMES = registry.names("screeners")
SYNCHRONOUS = [name for name in NAMES if name != "asha"]
SHARES = st.floats(0.01, 1.0)
LADDER = {"eta": st.integers(2, 5), "min_share": SHARES, "screening_seeds": st.integers(1, 3)}
OPTIONS = {
    "successive_halving": LADDER | {"z": st.floats(0, 3), "max_extra_share": st.floats(0, 2)},
    "asha": LADDER,
    "hyperband": LADDER | {"seed": st.integers(0, 9)},
    "bandit": {"pull_share": SHARES, "finalists": st.integers(1, 4)},
    "small_first": {"keep": st.integers(1, 4), "eta": st.integers(2, 4), "screening_seeds": st.integers(1, 3)},
}
SIZES = ("small", "middle", "full")


@st.composite
def contests(draw):
    names = tuple(f"m{number}" for number in range(draw(st.integers(2, 13))))
    sizes = draw(st.sampled_from([("small", "full"), SIZES]))
    return Contest(
        candidates=names,
        baseline=draw(st.sampled_from(names)),
        seeds=tuple(range(draw(st.integers(1, 3)))),
        budget_tokens=draw(st.integers(1, 1000)),
        sizes=sizes,
        size_costs=dict(zip(sizes, (0.02, 1.0) if len(sizes) == 2 else (0.02, 0.1, 1.0), strict=True)),
        sigma=draw(st.none() | st.floats(0, 0.5)),
    )


def screener(name, data):
    return registry.member("screeners", name)(**data.draw(st.fixed_dictionaries(OPTIONS.get(name, {}))))


def losses(seed, failing):
    """Losses that tie often; one job in `failing` diverges."""

    def loss_of(job):
        rng = random.Random(f"{seed} {job}")
        failure = rng.choice([None, float("nan"), float("inf")])
        return failure if failing and rng.randrange(failing) == 0 else rng.randrange(20) / 10

    return loss_of


LOSSES = st.builds(losses, st.integers(0, 10**6), st.sampled_from([0, 0, 2, 5]))


def contest(num, *, seeds=(0,), budget=900, **rest):
    names = ("base", *(f"m{number}" for number in range(1, num)))
    return Contest(candidates=names, baseline="base", seeds=seeds, budget_tokens=budget, **rest)


def by_number(job):
    """The higher a candidate's number the worse, the baseline worst."""
    return 99.0 if job.candidate == "base" else float(job.candidate[1:])


def reached(results):
    """Most tokens by candidate."""
    most: dict[str, int] = {}
    for result in results:
        most[result.job.candidate] = max(result.job.tokens, most.get(result.job.candidate, 0))
    return most


def states(screener, contest, results):
    return {standing.candidate: standing.state for standing in screener.standing(contest, results)}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(data=st.data(), contest=contests(), loss_of=LOSSES, workers=st.integers(1, 5), seed=st.integers(0, 99))
def test_a_contest_ends_within_the_grid_with_the_baseline_at_the_full_budget(
    name, data, contest, loss_of, workers, seed
):
    made = screener(name, data)
    results = run(made, contest, loss_of, workers=workers, seed=seed)
    small = sum(contest.size_costs[size] for size in contest.sizes[:-1]) if name == "small_first" else 0.0
    assert 0 < cost_share(contest, results) <= 1 + small + 1e-9
    finite = [result.job for result in results if result.loss is not None and abs(result.loss) < 9]
    for number in contest.seeds:
        end = Job(candidate=contest.baseline, seed=number, size="full", tokens=contest.budget_tokens)
        failed = any(result.job.trial == end.trial and result.job not in finite for result in results)
        assert failed or end in finite
    standing = made.standing(contest, results)
    assert [entry.candidate for entry in standing] == list(contest.candidates)
    for entry in standing:
        there = [job for job in finite if job.candidate == entry.candidate and job.size == entry.size]
        assert entry.tokens == max((job.tokens for job in there), default=0)
        assert (entry.loss is None) == (entry.num_seeds == 0) == (entry.size is None)
        # Who is kept or carried has come to the end, and nobody else has been trained there for nothing.
        at_end = (entry.size, entry.tokens) == ("full", contest.budget_tokens)
        assert at_end or entry.state in {"stopped", "failed", "baseline"}
        assert entry.state != "stopped" or (entry.candidate != contest.baseline and "loss" in entry.why)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12)
@given(data=st.data(), contest=contests(), loss_of=LOSSES, kills=st.lists(st.integers(0, 40), max_size=4))
def test_a_killed_contest_goes_on_from_its_journal_to_the_same_results(name, data, contest, loss_of, kills):
    made = screener(name, data)
    whole = run(made, contest, loss_of)
    journal: list[Result] = []
    for num in sorted(kills):
        journal = run(made, contest, loss_of, journal=journal, max_results=max(num, len(journal)))
    again = run(made, contest, loss_of, journal=journal)
    assert [result.job for result in again] == [result.job for result in whole]


@pytest.mark.parametrize("name", SYNCHRONOUS)
@settings(max_examples=12)
@given(data=st.data(), contest=contests(), loss_of=LOSSES, workers=st.integers(2, 6), seed=st.integers(0, 99))
def test_the_number_of_workers_changes_no_result_of_a_synchronous_screener(name, data, contest, loss_of, workers, seed):
    made = screener(name, data)
    alone = {result.job for result in run(made, contest, loss_of)}
    assert {result.job for result in run(made, contest, loss_of, workers=workers, seed=seed)} == alone


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12)
@given(data=st.data(), contest=contests(), loss_of=LOSSES, num=st.integers(0, 60), seed=st.integers(0, 99))
def test_neither_the_order_of_results_nor_a_second_copy_changes_the_next_jobs(name, data, contest, loss_of, num, seed):
    made = screener(name, data)
    results = run(made, contest, loss_of, workers=3, seed=seed, max_results=num)
    again = data.draw(st.permutations(results)) + results[:3]
    assert made.next_jobs(contest, again, []) == made.next_jobs(contest, results, [])
    assert made.standing(contest, again) == made.standing(contest, results)


@pytest.mark.parametrize("name", NAMES)
def test_a_contest_in_which_everything_fails_ends(name):
    made = registry.member("screeners", name)()
    bout = contest(5, seeds=(0, 1), sizes=("small", "full"), size_costs={"small": 0.1, "full": 1})
    results = run(made, bout, lambda job: None, workers=3)
    assert made.next_jobs(bout, results, []) == []
    assert set(states(made, bout, results).values()) == {"failed"}
    assert all(entry.num_failed > 0 and entry.loss is None for entry in made.standing(bout, results))


@pytest.mark.parametrize("name", NAMES)
def test_a_screener_is_a_frozen_definition_that_a_manifest_can_hold(name):
    made = registry.member("screeners", name)()
    assert registry.meaning(type(made)).endswith(".")
    assert type(made).__dataclass_params__.frozen
    assert fingerprint(made) == fingerprint(registry.member("screeners", name)())
    assert getattr(screeners, type(made).__name__) is type(made)


@pytest.mark.parametrize(
    ("made", "options"),
    [
        *((kind, wrong) for kind in (SuccessiveHalving, Asha, Hyperband) for wrong in ({"eta": 1}, {"min_share": 0.0})),
        *((kind, {"screening_seeds": 0}) for kind in (SuccessiveHalving, Asha, Hyperband, SmallFirst)),
        (Asha, {"min_share": 1.5}),
        (Hyperband, {"min_share": float("nan")}),
        (SuccessiveHalving, {"z": -1.0}),
        (SuccessiveHalving, {"max_extra_share": float("inf")}),
        (Bandit, {"pull_share": 0.0}),
        (Bandit, {"finalists": 0}),
        (SmallFirst, {"keep": 0}),
        (SmallFirst, {"eta": 1}),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(made, options):
    with pytest.raises(PlanError, match=f"{made.__name__}.{next(iter(options))} is .*; it must be "):
        made(**options)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("candidates", ("a",)),
        ("candidates", ("a", "b", "a")),
        ("baseline", "c"),
        ("seeds", ()),
        ("seeds", (1, 1)),
        ("budget_tokens", 0),
        ("sizes", ()),
        ("sizes", ("full", "full")),
        ("size_costs", {}),
        ("size_costs", {"full": 0.0}),
        ("sigma", -0.1),
        ("sigma", float("nan")),
    ],
)
def test_a_contest_that_decides_nothing_is_refused(field, value):
    good = {"candidates": ("a", "b"), "baseline": "a", "seeds": (0,), "budget_tokens": 10}
    with pytest.raises(PlanError, match=f"Contest.{field} is "):
        Contest(**(good | {field: value}))


@pytest.mark.parametrize("change", [{"candidate": "x"}, {"seed": 9}, {"size": "huge"}, {"tokens": 901}, {"tokens": 0}])
def test_a_result_of_another_contest_is_refused(change):
    job = dataclasses.replace(Job(candidate="m1", seed=0, size="full", tokens=900), **change)
    with pytest.raises(FormatError, match="begin anew"):
        FullGrid().next_jobs(contest(3), [Result(job=job, loss=1.0)], [])


def test_results_of_a_screener_with_other_rungs_are_refused_where_they_leave_a_comparison_open():
    grid = run(FullGrid(), contest(4), by_number)
    with pytest.raises(FormatError, match="base, seed 0, has a result at 900 tokens and none at 100"):
        SuccessiveHalving().next_jobs(contest(4), grid, [])


def test_a_resumed_trial_is_paid_once_and_a_small_size_by_its_cost():
    bout = contest(2, seeds=(0, 1), sizes=("small", "full"), size_costs={"small": 0.5, "full": 2.0})
    jobs = [("base", "full", 100), ("base", "full", 300), ("base", "full", 300), ("m1", "small", 900)]
    results = [Result(job=Job(candidate=name, seed=0, size=s, tokens=t), loss=1.0) for name, s, t in jobs]
    assert cost_share(bout, results) == pytest.approx((300 * 2.0 + 900 * 0.5) / (4 * 900 * 2.0))
    assert cost_share(bout, []) == 0.0


def test_rungs_are_powers_of_eta_below_the_budget_and_few_seeds_below_the_last():
    rungs = ladder(contest(2, seeds=(7, 8, 9), budget=1000), eta=3, min_share=0.1, screening_seeds=2)
    assert [(rung.tokens, rung.seeds) for rung in rungs] == [(111, (7, 8)), (333, (7, 8)), (1000, (7, 8, 9))]
    assert [rung.tokens for rung in ladder(contest(2), eta=3, min_share=1 / 9, screening_seeds=1)] == [100, 300, 900]
    assert [rung.tokens for rung in ladder(contest(2), eta=3, min_share=0.12, screening_seeds=1)] == [300, 900]
    assert [rung.tokens for rung in ladder(contest(2), eta=2, min_share=1.0, screening_seeds=1)] == [900]
    assert [rung.tokens for rung in ladder(contest(2, budget=2), eta=3, min_share=0.01, screening_seeds=1)] == [2]
    assert str(rungs[-1]) == "1,000 tokens of size full"


def test_the_full_grid_trains_all_to_the_end_a_seed_after_the_other():
    results = run(FullGrid(), contest(3, seeds=(4, 5)), by_number)
    assert [(r.job.seed, r.job.candidate, r.job.tokens) for r in results] == [
        *((4, name, 900) for name in ("base", "m1", "m2")),
        *((5, name, 900) for name in ("base", "m1", "m2")),
    ]
    assert cost_share(contest(3, seeds=(4, 5)), results) == 1.0


def test_halving_keeps_a_third_at_each_rung_and_the_baseline_beside_them():
    bout = contest(8, seeds=(0, 1))
    made = SuccessiveHalving()
    first = made.next_jobs(bout, [], [])
    assert [(job.candidate, job.seed, job.tokens) for job in first] == [(name, 0, 100) for name in bout.candidates]
    results = run(made, bout, by_number)
    assert reached(results) == {"base": 900, "m1": 900, "m2": 300, "m3": 300, **{f"m{n}": 100 for n in range(4, 8)}}
    end = [(r.job.candidate, r.job.seed) for r in results if r.job.tokens == 900]
    assert end == [("base", 0), ("base", 1), ("m1", 0), ("m1", 1)]
    standing = made.standing(bout, results)
    assert [entry.state for entry in standing] == ["baseline", "kept", *["stopped"] * 6]
    assert (standing[1].loss, standing[1].num_seeds) == (1.0, 2)
    assert standing[2].why == "rank 2 of 3 at 300 tokens of size full, loss 2.0000: 1 go on"


def test_halving_waits_for_the_slowest_at_a_rung():
    bout, made = contest(5), SuccessiveHalving()
    jobs = made.next_jobs(bout, [], [])
    results = [Result(job=job, loss=by_number(job)) for job in jobs]
    assert made.next_jobs(bout, results[:-1], jobs[-1:]) == []
    assert {job.candidate for job in made.next_jobs(bout, results, [])} == {"base", "m1", "m2"}


def test_halving_keeps_who_is_within_the_noise_of_the_cut_but_no_more_than_allowed():
    close = {"m1": 1.0, "m2": 1.02, "m3": 1.13, "m4": 1.14, "m5": 1.17, "m6": 1.5}

    def survivors(made, sigma):
        results = run(made, contest(7, sigma=sigma), lambda job: close.get(job.candidate, 9.0))
        return {name for name, tokens in reached(results).items() if tokens >= 300} - {"base"}

    assert survivors(SuccessiveHalving(), None) == {"m1", "m2"}
    # One seed: the margin is sigma * sqrt(2) = 0.1414 above 1.02, and half of two is one more.
    assert survivors(SuccessiveHalving(max_extra_share=0.5), 0.1) == {"m1", "m2", "m3"}
    assert survivors(SuccessiveHalving(max_extra_share=5.0), 0.1) == {"m1", "m2", "m3", "m4"}
    assert survivors(SuccessiveHalving(max_extra_share=5.0, z=0.5), 0.1) == {"m1", "m2"}
    assert survivors(SuccessiveHalving(max_extra_share=5.0, z=10.0), 0.1) == {"m1", "m2", "m3", "m4", "m5", "m6"}


def test_halving_pools_the_noise_from_three_candidates_with_two_seeds():
    def survivors(num):
        # Seeds differ by 0.2, so sigma is 0.1414 and two seeds leave a margin of 0.1414: 1.1 is within it.
        def loss_of(job):
            return {"m1": 1.0, "m2": 1.1}.get(job.candidate, 9.0) + 0.2 * job.seed

        made = SuccessiveHalving(screening_seeds=2, max_extra_share=1.0)
        results = run(made, contest(num, seeds=(0, 1)), loss_of)
        return {name for name, tokens in reached(results).items() if tokens == 900} - {"base"}

    assert survivors(3) == {"m1", "m2"}
    assert survivors(2) == {"m1"}
    failed = run(
        SuccessiveHalving(screening_seeds=2),
        contest(3, seeds=(0, 1)),
        lambda job: (
            None if (job.candidate, job.seed) == ("base", 1) else {"m1": 1.0, "m2": 1.1}.get(job.candidate, 9.0)
        ),
    )
    assert reached(failed) == {"base": 900, "m1": 900, "m2": 100}


def test_a_failed_seed_is_left_out_and_a_candidate_that_lost_all_frees_its_place():
    def loss_of(job):
        if job.candidate == "m1" or (job.candidate, job.seed) == ("m2", 0):
            return None
        return by_number(job)

    bout, made = contest(5, seeds=(0, 1)), SuccessiveHalving(screening_seeds=2)
    results = run(made, bout, loss_of)
    assert reached(results) == {"base": 900, "m1": 100, "m2": 900, "m3": 300, "m4": 100}
    standing = {entry.candidate: entry for entry in made.standing(bout, results)}
    assert (standing["m1"].state, standing["m1"].num_failed) == ("failed", 2)
    assert (standing["m2"].state, standing["m2"].num_failed, standing["m2"].num_seeds) == ("kept", 1, 1)


def test_equal_losses_go_by_the_order_of_the_list():
    for made in (SuccessiveHalving(), Asha(), Bandit(finalists=1)):
        results = run(made, contest(6), lambda job: 1.0)
        assert {name for name, tokens in reached(results).items() if tokens == 900} == {"base", "m1"}


def test_asha_resumes_from_the_top_down_and_returns_to_who_paused():
    order = ["m3", "m2", "m1", "m4", "m5", "m6", "m7", "m8", "m9"]
    bout = dataclasses.replace(contest(10), candidates=("base", *order))
    results = run(Asha(), bout, by_number)
    did = [(r.job.candidate, r.job.tokens) for r in results]
    assert did[:3] == [("base", 100), ("base", 300), ("base", 900)]
    # Of three the best one goes on; m2, paused since the second result, does once six are known.
    assert did[3:9] == [("m3", 100), ("m2", 100), ("m1", 100), ("m1", 300), ("m4", 100), ("m5", 100)]
    assert did[9:] == [
        *(("m6", 100), ("m2", 300), ("m7", 100), ("m8", 100), ("m9", 100)),
        *(("m3", 300), ("m1", 900)),
    ]
    assert states(Asha(), bout, results)["m2"] == "stopped"


def test_asha_has_work_for_every_worker_and_starts_nothing_twice():
    bout = contest(5)
    first = Asha().next_jobs(bout, [], [])
    assert [job.candidate for job in first] == list(bout.candidates)
    results = [Result(job=job, loss=by_number(job)) for job in first[1:4]]
    assert Asha().next_jobs(bout, results, [first[0]]) == [
        Job(candidate="m1", seed=0, size="full", tokens=300),
        first[4],
    ]


def test_asha_ends_with_a_winner_where_the_list_is_shorter_than_eta():
    results = run(Asha(eta=4, min_share=0.05), contest(3, budget=1600), by_number)
    assert reached(results) == {"base": 1600, "m1": 1600, "m2": 100}


def test_the_stopping_form_keeps_the_first_and_loses_a_later_one_that_would_have_been_promoted():
    bout = dataclasses.replace(contest(4), candidates=("base", "m2", "m1", "m3"))
    made = Asha(stopping=True)
    results = run(made, bout, lambda job: 0.5 if (job.candidate, job.tokens) == ("m3", 900) else by_number(job))
    # m2 goes on as the first, m1 as the best of two; of three only the best does.
    assert reached(results) == {"base": 900, "m2": 900, "m1": 900, "m3": 100}
    assert states(made, bout, results)["m3"] == "stopped"


def test_hyperband_splits_the_list_as_its_paper_splits_the_trials():
    bout, made = contest(18), Hyperband()
    brackets = made.brackets(bout)
    # eta 3, three rungs: 9, 4.5 and 3 of 16.5, so 17 challengers fall into 9, 5 and 3.
    assert [len(names) for names in brackets] == [9, 5, 3]
    assert sorted(name for names in brackets for name in names) == sorted(bout.challengers)
    assert Hyperband(seed=1).brackets(bout) != brackets
    results = run(made, bout, by_number)
    fewest = {name: min(r.job.tokens for r in results if r.job.candidate == name) for name in bout.challengers}
    assert [{fewest[name] for name in names} for names in brackets] == [{100}, {300}, {900}]
    at_end = [sum(reached(results)[name] == 900 for name in names) for names in brackets]
    assert at_end == [1, 2, 3]
    best = min(brackets[0], key=lambda name: int(name[1:]))
    assert reached(results)[best] == 900


def test_successive_rejects_pulls_as_its_paper_says():
    # K = 4: 1/2 + 1/2 + 1/3 + 1/4 = 19/12. Three pulls for the last two: n - K = floor(2 * 3 * 19/12) = 9, and
    # n_k = ceil(9 * 12/19 / (5 - k)) = ceil(1.42), ceil(1.89), ceil(2.84).
    assert pulls_by_phase(4, 3) == (2, 2, 3)
    assert pulls_by_phase(2, 5) == (5,)
    assert pulls_by_phase(1, 5) == ()
    assert all(pulls_by_phase(arms, most)[-1] <= most for arms in range(2, 40) for most in range(1, 9))
    bout, made = contest(5, seeds=(0, 1, 2)), Bandit(finalists=1)
    results = run(made, bout, by_number)
    pulls = {name: sum(r.job.candidate == name and r.job.tokens == 300 for r in results) for name in bout.candidates}
    assert pulls == {"base": 3, "m1": 3, "m2": 3, "m3": 2, "m4": 2}
    assert reached(results) == {"base": 900, "m1": 900, "m2": 300, "m3": 300, "m4": 300}


def test_a_bandit_spends_seeds_on_who_is_still_in_question():
    # The first seed misleads by more than the gap between m1 and m2; the mean of three does not.
    def loss_of(job):
        return by_number(job) + (1.5 if (job.candidate, job.seed) == ("m1", 0) else 0.0)

    results = run(Bandit(finalists=1), contest(5, seeds=(0, 1, 2)), loss_of)
    assert {name for name, tokens in reached(results).items() if tokens == 900} == {"base", "m1"}
    one_seed = run(Bandit(finalists=1), contest(5, seeds=(0,)), loss_of)
    assert {name for name, tokens in reached(one_seed).items() if tokens == 900} == {"base", "m2"}


def test_a_candidate_whose_pulls_all_failed_is_no_finalist():
    bout, made = contest(6, seeds=(0, 1, 2)), Bandit()
    results = run(made, bout, lambda job: None if job.candidate == "m1" else by_number(job))
    assert {name for name, tokens in reached(results).items() if tokens == 900} == {"base", "m2", "m3", "m4"}
    assert {r.job.seed for r in results if r.job.candidate == "m1"} < set(bout.seeds)
    assert states(made, bout, results)["m1"] == "failed"


def test_small_models_choose_whom_large_ones_are_trained_on():
    bout = contest(9, seeds=(0, 1), sizes=("s", "m", "l"), size_costs={"s": 0.1, "m": 0.3, "l": 1.0})
    results = run(SmallFirst(keep=1), bout, by_number)
    sizes = {size: {r.job.candidate for r in results if r.job.size == size} for size in bout.sizes}
    assert sizes == {"s": set(bout.candidates), "m": {"base", "m1", "m2", "m3"}, "l": {"base", "m1"}}
    assert {r.job.tokens for r in results} == {900}
    assert cost_share(bout, results) == pytest.approx((9 * 0.1 + 4 * 0.3 + 4 * 1.0) / 18)
    assert [entry.size for entry in SmallFirst(keep=1).standing(bout, results)][:3] == ["l", "l", "m"]


def test_screening_by_size_needs_a_second_size():
    with pytest.raises(PlanError, match="a size below 'full'"):
        SmallFirst().next_jobs(contest(3), [], [])


def test_a_rung_lists_a_job_a_seed():
    jobs = Rung(size="full", tokens=5, seeds=(1, 2)).jobs("a")
    assert jobs == [Job(candidate="a", seed=seed, size="full", tokens=5) for seed in (1, 2)]
