"""The model, by hand and by what must not change its outputs."""

from __future__ import annotations

import math

import pytest
import torch

from dataeff.errors import PlanError
from dataeff.train.model import GPT, ModelSettings, flops_per_token, next_token_loss, num_parameters, rotated

SHAPE = {"vocab_size": 50, "sequence_length": 12, "width": 16, "layers": 2, "heads": 2}


def a_model(**changes) -> GPT:
    torch.manual_seed(0)
    model = GPT(ModelSettings(**{**SHAPE, **changes})).eval()
    for parameter in model.parameters():
        # At their start, layers do next to nothing.
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def tokens(rows: int = 3, length: int = 12) -> torch.Tensor:
    return torch.randint(0, 50, (rows, length), generator=torch.Generator().manual_seed(1))


def test_parameters_and_flops_are_those_counted_by_hand():
    block = 16 * 48 + 16 * 16 + 2 * 16 * 64 + 2 * 16
    tied = GPT(ModelSettings(**SHAPE))
    assert num_parameters(tied) == num_parameters(tied, embeddings=False) == 50 * 16 + 2 * block + 16
    untied = GPT(ModelSettings(**SHAPE, tied_embeddings=False, positions="learned", norm="layer"))
    block += 2 * 16
    assert num_parameters(untied) == 2 * 50 * 16 + 12 * 16 + 2 * block + 2 * 16
    multiplied = 50 * 16 + 2 * block + 2 * 16
    assert num_parameters(untied, embeddings=False) == multiplied
    assert flops_per_token(untied) == 6 * multiplied + 12 * 2 * 2 * 8 * 12


@pytest.mark.parametrize("changes", [{}, {"positions": "learned"}, {"mlp": "swiglu"}, {"norm": "layer"}])
def test_a_token_sees_nothing_that_comes_after_it(changes):
    model, before = a_model(**changes), tokens()
    after = before.clone()
    after[:, 7:] = (after[:, 7:] + 1) % 50
    assert model(before)[:, :7].allclose(model(after)[:, :7], atol=1e-5)
    assert not model(before)[:, 7:].allclose(model(after)[:, 7:], atol=1e-2)


def test_rotary_positions_say_how_far_apart_two_tokens_are_and_nothing_else():
    query, key = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    powers = 10_000.0 ** (-torch.arange(0, 8, 2) / 8)

    def score(place: float, other: float) -> float:
        turned = [rotated(vector, (at * powers)[None, None]) for vector, at in ((query, place), (key, other))]
        return (turned[0] * turned[1]).sum().item()

    assert score(9, 4) == pytest.approx(score(105, 100), abs=1e-4)
    assert score(9, 4) != pytest.approx(score(9, 5), abs=1e-3)


def test_masked_documents_have_the_losses_that_they_have_alone():
    model, row = a_model(mask_documents=True), tokens(1)
    position_ids = torch.tensor([[*range(3, 8), *range(4), *range(3)]])
    document_ids = torch.tensor([[0] * 5 + [1] * 4 + [2] * 3])
    together, count = next_token_loss(model, row, position_ids, document_ids)
    alone = []
    for start, stop in ((0, 5), (5, 9), (9, 12)):
        piece = slice(start, stop)
        alone.append(next_token_loss(model, row[:, piece], position_ids[:, piece], document_ids[:, piece]))
    assert together.item() == pytest.approx(sum(loss.item() for loss, _ in alone), rel=1e-5)
    assert int(count) == sum(int(number) for _, number in alone) == 9


def test_padding_is_never_predicted():
    model, row = a_model(mask_documents=True), tokens(1)
    document_ids = torch.tensor([[0] * 8 + [-1] * 4])
    _, count = next_token_loss(model, row, torch.arange(12)[None], document_ids)
    assert int(count) == 7


def test_recomputing_activations_changes_no_gradient():
    gradients = []
    for recompute in (False, True):
        model = a_model(recompute=recompute).train()
        next_token_loss(model, tokens())[0].backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(one.equal(two) for one, two in zip(*gradients, strict=True))


def test_the_first_loss_is_that_of_knowing_nothing():
    torch.manual_seed(0)
    loss, count = next_token_loss(GPT(ModelSettings(**SHAPE)), tokens())
    assert (loss / count).item() == pytest.approx(math.log(50), abs=0.1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 15}, "width is 15; it must be an even multiple of heads = 2"),
        ({"layers": 0}, "layers is 0"),
        ({"norm": "batch"}, "rms or layer"),
        ({"positions": "alibi"}, "rotary or learned"),
    ],
)
def test_shapes_that_cannot_work_are_refused(changes, message):
    with pytest.raises(PlanError, match=message):
        ModelSettings(**{**SHAPE, **changes})


def test_masking_documents_without_their_boundaries_is_refused():
    with pytest.raises(PlanError, match="boundaries=True"):
        a_model(mask_documents=True)(tokens())
