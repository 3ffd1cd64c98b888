"""muP: what scales does so as the table says, what does not is as it was, and broken rules are noticed."""

from __future__ import annotations

import copy
import dataclasses
import io
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff.errors import PlanError
from dataeff.train.coordinate_check import coordinate_check
from dataeff.train.model import GPT, ModelSettings, next_token_loss
from dataeff.train.parametrisation import Rules, parameter_groups
from tests.oracle.plain_gpt import asked_of, plain_gpt, plain_logits

SHAPE = {"vocab_size": 50, "sequence_length": 12, "width": 32, "layers": 2, "heads": 2}
MUP = {**SHAPE, "parametrisation": "mup", "base_width": 16, "base_layers": 1, "depth_alpha": 0.75}
STANDARD = ModelSettings(vocab_size=16, sequence_length=8, width=64, layers=2, heads=4)
WIDER = dataclasses.replace(STANDARD, parametrisation="mup", base_width=64)
DEEPER = dataclasses.replace(WIDER, base_layers=2)
WIDTHS = (64, 128, 256)
FEW = {"steps": 3, "seeds": (0, 1, 2), "tolerance": 0.3}
"""Three narrow widths and three seeds leave up to 0.25 of noise in a slope; every broken rule makes 0.45 or more."""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def seeded(shape: ModelSettings, rules: Rules | None = None) -> GPT:
    torch.manual_seed(0)
    return GPT(shape, rules)


def tokens() -> torch.Tensor:
    return torch.randint(0, 50, (3, 12), generator=torch.Generator().manual_seed(1))


def optimizer_of(model: GPT, weight_decay: float = 0.1) -> torch.optim.AdamW:
    return torch.optim.AdamW(parameter_groups(model, 0.01, weight_decay), betas=(0.9, 0.95))


def one_step(model: GPT, optimizer: torch.optim.Optimizer) -> float:
    loss, count = next_token_loss(model, tokens())
    (loss / count).backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def values(model: GPT) -> dict[str, dict[str, float]]:
    """Of the groups, relative to a learning rate, weight decay and epsilon of 1, by parameter."""
    found = {}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for group in parameter_groups(model, 1.0, 1.0, 1.0):
        assert group["lr"] == group["lr_scale"]
        for parameter in group["params"]:
            assert id(parameter) in names
            found[names.pop(id(parameter))] = {
                "lr": group["lr_scale"],
                "decay": group["weight_decay"],
                "eps": group["eps"],
            }
    assert not names
    return found


@settings(max_examples=30)
@given(
    heads=st.integers(1, 4),
    base_width=st.sampled_from([0, 4, 8, 24, 64]),
    layers=st.integers(1, 4),
    base_layers=st.integers(0, 4),
    alpha=st.sampled_from([0.5, 0.8, 1.0]),
    tied=st.booleans(),
    positions=st.sampled_from(["rotary", "learned"]),
    norm=st.sampled_from(["rms", "layer"]),
)
def test_every_parameter_is_in_one_group_with_the_values_of_the_table(
    heads, base_width, layers, base_layers, alpha, tied, positions, norm
):
    shape = ModelSettings(
        vocab_size=20, sequence_length=8, width=8 * heads, heads=heads, layers=layers, parametrisation="mup", norm=norm,
        base_width=base_width, base_layers=base_layers, depth_alpha=alpha, tied_embeddings=tied, positions=positions,
    )  # fmt: skip
    for name, found in values(GPT(shape)).items():
        wanted = asked_of(name, shape)
        assert found == {key: pytest.approx(wanted[key]) for key in found}, name


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("base_layers", [0, 2])
def test_weights_are_drawn_as_wide_as_the_table_says(tied, base_layers):
    shape = ModelSettings(
        vocab_size=300, sequence_length=64, width=128, heads=4, layers=8, parametrisation="mup", base_width=32,
        base_layers=base_layers, tied_embeddings=tied, positions="learned",
    )  # fmt: skip
    for name, parameter in seeded(shape).named_parameters():
        std = asked_of(name, shape)["std"]
        if not math.isnan(std):
            assert parameter.std().item() == pytest.approx(std, rel=0.05), name


def test_the_learning_rate_times_the_weight_decay_is_that_of_the_base_at_every_width():
    for width in (64, 256, 1024):
        found = values(GPT(dataclasses.replace(WIDER, width=width, heads=width // 16)))
        products = {found[name]["lr"] * found[name]["decay"] for name in found if "norm" not in name}
        assert products == {1.0}
    broken = values(GPT(dataclasses.replace(WIDER, width=256, heads=16), Rules(hidden_weight_decay=0.0)))
    assert broken["blocks.0.mlp.up.weight"]["lr"] * broken["blocks.0.mlp.up.weight"]["decay"] == 0.25


@pytest.mark.parametrize("heads", [2, 16])
def test_outputs_are_multiplied_as_the_table_says(heads):
    """Against the plain model with its weights scaled instead."""
    shape = ModelSettings(**{**MUP, "base_head_width": 4, "depth_alpha": 1.0, "heads": heads}, output_scale=3.0)
    model = seeded(dataclasses.replace(shape, tied_embeddings=False, input_scale=0.5)).eval()
    plain = plain_gpt(dataclasses.replace(model.settings))
    with torch.no_grad():
        for own, other in zip(model.parameters(), plain.parameters(), strict=True):
            other.copy_(torch.nn.init.normal_(own, std=0.3))
        plain["embedding"].weight *= 0.5
        plain["head"].weight *= 3.0 / 2
        for number in range(2):
            plain[f"out {number}"].weight /= 2
            plain[f"down {number}"].weight /= 2
            # Logits are q.k / head width x sqrt(base head width): as much as they differ, so do the queries.
            plain[f"qkv {number}"].weight[:32] *= math.sqrt(4 / shape.head_width)
    wanted = plain_logits(plain, shape, tokens())
    assert wanted.std() > 0.5
    assert model(tokens()).allclose(wanted, atol=1e-4)


@pytest.mark.parametrize("kind", [{}, {"parametrisation": "mup"}, {"parametrisation": "mup", "base_width": 32}])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "parts", [{}, {"norm": "layer", "positions": "learned", "mlp": "swiglu"}, {"recompute": True, "heads": 16}]
)
def test_at_the_base_size_weights_losses_and_steps_are_those_of_the_plain_model_to_the_bit(kind, tied, parts):
    shape = ModelSettings(**{**SHAPE, **parts}, tied_embeddings=tied, **kind)
    model, drawn = seeded(shape), torch.rand(3)
    torch.manual_seed(0)
    plain = plain_gpt(shape)
    assert torch.rand(3).equal(drawn)
    matrices = [parameter for parameter in plain.parameters() if parameter.dim() >= 2]
    others = [parameter for parameter in plain.parameters() if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    plain_optimizer, optimizer = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95)), optimizer_of(model)
    assert [len(group["params"]) for group in optimizer.param_groups] == [len(matrices), len(others)]
    for _ in range(2):
        logits = plain_logits(plain, shape, tokens())
        wanted = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), tokens()[:, 1:].flatten(), reduction="sum"
        )
        (wanted / 33).backward()
        plain_optimizer.step()
        plain_optimizer.zero_grad()
        assert one_step(model, optimizer) == wanted.item()
    assert all(own.equal(other) for own, other in zip(model.parameters(), plain.parameters(), strict=True))


def test_a_model_that_was_saved_or_copied_has_the_same_groups_and_takes_the_same_step():
    model = seeded(ModelSettings(**MUP))
    optimizer = optimizer_of(model)
    one_step(model, optimizer)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    content = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    loaded = GPT(model.settings)
    loaded.load_state_dict(content["model"])
    copied = copy.deepcopy(model)
    assert values(loaded) == values(copied) == values(model)
    others = [(other, optimizer_of(other)) for other in (loaded, copied)]
    wanted = one_step(model, optimizer)
    for other, own in others:
        own.load_state_dict(copy.deepcopy(content["optimizer"]))
        assert one_step(other, own) == wanted
        assert all(one.equal(two) for one, two in zip(other.parameters(), model.parameters(), strict=True))


def test_masked_documents_and_recomputing_change_no_gradient_of_a_scaled_model():
    ids = torch.zeros(3, 12, dtype=torch.int64)
    places = torch.arange(12).expand(3, 12)
    gradients = []
    for changes, inputs in (({}, ()), ({"mask_documents": True}, (places, ids)), ({"recompute": True}, ())):
        model = seeded(ModelSettings(**MUP, **changes)).train()
        next_token_loss(model, tokens(), *inputs)[0].backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for other in gradients[1:]:
        assert all(one.allclose(two, atol=1e-4) for one, two in zip(gradients[0], other, strict=True))


def test_the_right_rules_keep_activations_of_wider_models_as_they_are():
    found = coordinate_check((64, 128, 256, 512), WIDER, tolerance=0.12)
    assert found.failures == ()
    sites = {trend.site for trend in found.trends}
    assert {"embedding", "block 1 attention", "block 2 MLP", "block 2", "final norm", "logits"} <= sites
    assert {(trend.measure, trend.step) for trend in found.trends} == {
        *((("activation", step)) for step in range(5)),
        *((("change", step)) for step in range(1, 5)),
    }


@pytest.mark.parametrize(
    "changes",
    [{"tied_embeddings": False}, {"mlp": "swiglu", "norm": "layer", "positions": "learned"}],
)
def test_the_right_rules_hold_for_the_other_kinds_of_model(changes):
    assert coordinate_check(WIDTHS, dataclasses.replace(WIDER, **changes), **FEW).failures == ()


@pytest.mark.parametrize(
    ("shape", "rules", "site"),
    [
        (STANDARD, Rules(), "block 2 attention"),
        (WIDER, Rules(hidden_learning_rate=0.0), "block 2 attention"),
        (WIDER, Rules(hidden_init=0.0), "block 1 attention"),
        (WIDER, Rules(readout=0.0), "logits"),
    ],
    ids=["standard", "learning rate", "init", "readout"],
)
def test_models_that_do_not_scale_by_the_rules_are_caught(shape, rules, site):
    found = coordinate_check(WIDTHS, shape, rules=rules, **FEW)
    assert not found.passes
    assert found.failures[0] == found.steepest
    assert found.steepest.slope > 0.5
    assert max(trend.slope for trend in found.failures if trend.site == site) > 0.5


def test_attention_over_the_root_of_the_head_width_is_caught_where_heads_grow_wider():
    shape = dataclasses.replace(WIDER, base_head_width=16)
    assert coordinate_check(WIDTHS, shape, grow="head_width", **FEW).failures == ()
    found = coordinate_check(WIDTHS, shape, grow="head_width", rules=Rules(attention=0.0), **FEW)
    assert found.failures[0].site.endswith("attention logits")
    assert found.failures[0].slope > 0.4


def test_deeper_models_need_the_residual_multiplier():
    depths = (2, 4, 8, 16)
    assert coordinate_check(depths, DEEPER, grow="layers", **FEW).failures == ()
    for shape, rules in ((DEEPER, Rules(residual=0.0)), (WIDER, Rules())):
        found = coordinate_check(depths, shape, grow="layers", rules=rules, **FEW)
        assert (found.failures[0].site, found.failures[0].slope > 0.6) == ("block 2", True)


def test_a_half_power_of_depth_needs_its_learning_rate_and_leaves_single_layers_lazy():
    """What CompleteP has against alpha = 1/2: each layer learns the less, the more there are."""
    shape = dataclasses.replace(DEEPER, depth_alpha=0.5)

    def slopes(rules: Rules) -> dict[str, float]:
        found = coordinate_check((2, 4, 8, 16), shape, grow="layers", rules=rules, **FEW)
        return {trend.site: trend.slope for trend in found.trends if (trend.measure, trend.step) == ("change", 3)}

    right, broken = slopes(Rules()), slopes(Rules(depth_learning_rate=0.0))
    assert abs(right["block 2"]) < 0.2
    assert right["block 1 MLP"] < -0.25
    assert broken["block 2"] > 0.3


def test_a_check_is_the_same_every_time_and_leaves_the_generator_alone():
    torch.manual_seed(5)
    first = coordinate_check((32, 64), STANDARD, steps=2, seeds=(0,))
    drawn = torch.rand(2)
    torch.manual_seed(5)
    assert torch.rand(2).equal(drawn)
    assert coordinate_check((32, 64), STANDARD, steps=2, seeds=(0,)) == first
    assert coordinate_check((32, 64), STANDARD, steps=2, seeds=(1,)) != first


def test_given_batches_are_those_that_models_learn_from():
    batches = [torch.tensor([[1, 2, 3, 4]]), torch.tensor([[5, 6, 7, 8]])]
    both = coordinate_check((32, 64), STANDARD, steps=2, seeds=(0,), batches=batches)
    once = coordinate_check((32, 64), STANDARD, steps=2, seeds=(0,), batches=batches[:1])

    def of(found, step):
        return [trend.means for trend in found.trends if trend.step == step]

    assert of(both, 1) == of(once, 1)
    assert of(both, 2) != of(once, 2)


@pytest.mark.parametrize("learning_rate", [0.0, 1e30])
def test_models_that_stand_still_or_diverge_fail(learning_rate):
    found = coordinate_check((32, 64), STANDARD, steps=2, seeds=(0,), learning_rate=learning_rate)
    assert found.failures[0].slope == math.inf


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((64, 64), {}, "1 sizes"),
        ((64, 128), {"seeds": ()}, "0 seeds"),
        ((64, 72), {}, "a width of 72 is not of heads of 16"),
        ((2, 3), {"grow": "layers"}, "3 layers cannot be compared at shares of 2"),
    ],
)
def test_sizes_that_cannot_be_compared_are_refused(sizes, options, message):
    with pytest.raises(PlanError, match=message):
        coordinate_check(sizes, STANDARD, **options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parametrisation": "ntk"}, "standard or mup"),
        ({"base_width": 64}, "base_width is 64; it must be 0 unless parametrisation is 'mup'"),
        ({"parametrisation": "mup", "base_layers": -1}, "base_layers is -1; it must be 0 or more"),
        ({"parametrisation": "mup", "depth_alpha": 0.4}, r"depth_alpha is 0.4; it must be in \[0.5, 1\]"),
        ({"output_scale": 0.0}, "output_scale is 0.0; it must be a finite number above 0"),
        ({"input_scale": math.nan}, "input_scale is nan"),
    ],
)
def test_scalings_that_cannot_work_are_refused(changes, message):
    with pytest.raises(PlanError, match=message):
        ModelSettings(**SHAPE, **changes)
