"""muP: what of a model and its optimizer must change with its size so that a learning rate found small serves large.

In the maximal update parametrisation (Yang et al. 2022, arXiv:2203.03466) activations, and what a step changes of them,
keep their size as the model grows wider, so that the best learning rate of a narrow model is that of a wide one.
CompleteP (Dey et al. 2025, arXiv:2505.01618) does the same for deeper ones. With m = width / base width and
m_L = layers / base layers, for AdamW:

    parameter             init std        learning rate       weight decay  epsilon           forward
    token, position       s               lr                  wd            eps / m           x input_scale
    matrices of blocks    s / sqrt(m)     lr/m * m_L^(a-1)    wd * m        eps / (m m_L^a)
    gains of blocks       1               lr * m_L^(a-1)      0             eps / (m m_L^a)
    readout, tied or not  s               lr                  wd            eps / m           x output_scale / m
    attention                                                                                 1/d x sqrt(base d)
    residual                                                                                  x + f(x) / m_L^a

AdamW multiplies weight decay by the learning rate, so wd * m keeps their product. The two matrices of a block that
write to the residual stream have GPT-2's 1 / sqrt(2 layers) on top, of the base layers where depth scales too. Adam's
epsilon follows the gradients, which shrink as 1 / m. The rules are those of EleutherAI's nanoGPT-mup, branch completep,
but for epsilon outside blocks, which does not follow depth here; microsoft/mup's MuAdamW has the same for width.

The base must be a model that trains well with s = 0.02. In the benchmark `mup`, a base 128 wide does; from a base of 32
with tied embeddings, wider models were worse than narrow ones at two and four times the best learning rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn

EPSILON = 1e-8
"""AdamW's, at the base size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """With which power of a ratio each quantity scales; as they are by default, they are muP's.

    The product uses no other. One that differs in a field is a mutant, by which tests prove that they would notice.
    """

    hidden_init: float = -0.5
    """Of m: standard deviation of the matrices of blocks."""
    hidden_learning_rate: float = -1.0
    """Of m: their learning rate."""
    hidden_weight_decay: float = 1.0
    """Of m: their weight decay."""
    readout: float = -1.0
    """Of m: the logits."""
    epsilon: float = -1.0
    """Of m: Adam's epsilon, of all parameters."""
    attention: float = -0.5
    """Of head width / base head width: attention's logits, on top of the usual 1 / sqrt(head width)."""
    residual: float = -1.0
    """Of m_L^alpha: what a layer adds to the residual stream."""
    depth_learning_rate: float = 1.0
    """Of m_L^(alpha - 1): the learning rate of all parameters of blocks."""
    depth_epsilon: float = -1.0
    """Of m_L^alpha: Adam's epsilon of all parameters of blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """How much larger a model is than the one that its hyper-parameters were tuned on; all 1: not at all."""

    width: float = 1.0
    head_width: float = 1.0
    layers: float = 1.0
    depth_alpha: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Multipliers:
    """What each quantity is multiplied by; all 1 where a model is as large as its base."""

    hidden_init: float
    hidden_learning_rate: float
    """Of the matrices of blocks."""
    gain_learning_rate: float
    """Of the gains and biases of blocks."""
    hidden_weight_decay: float
    hidden_epsilon: float
    """Of all parameters of blocks."""
    epsilon: float
    """Of all other parameters."""
    readout: float
    attention: float
    residual: float


class Parametrised(Protocol):
    """A model whose blocks are parameters named `blocks.*`."""

    multipliers: Multipliers

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Every parameter once."""


def multipliers(ratios: Ratios, rules: Rules) -> Multipliers:
    """What the rules come to at a size."""
    wide, deep = ratios.width, ratios.layers**ratios.depth_alpha
    depth_rate = (ratios.layers ** (ratios.depth_alpha - 1)) ** rules.depth_learning_rate
    return Multipliers(
        hidden_init=wide**rules.hidden_init,
        hidden_learning_rate=wide**rules.hidden_learning_rate * depth_rate,
        gain_learning_rate=depth_rate,
        hidden_weight_decay=wide**rules.hidden_weight_decay,
        hidden_epsilon=wide**rules.epsilon * deep**rules.depth_epsilon,
        epsilon=wide**rules.epsilon,
        readout=wide**rules.readout,
        attention=ratios.head_width**rules.attention,
        residual=deep**rules.residual,
    )


def is_hidden(name: str) -> bool:
    """Whether a parameter or module of this name is one of a block."""
    return name.startswith("blocks.")


def parameter_groups(
    model: Parametrised, learning_rate: float, weight_decay: float, epsilon: float = EPSILON
) -> list[dict[str, Any]]:
    """Parameter groups for AdamW, those with the same values together, in the order of the model's parameters.

    A schedule that sets the learning rate must keep the scale: `group["lr"] = scheduled * group["lr_scale"]`.

    Args:
        model: Not wrapped, so that its parameters have their own names.
        learning_rate: Of the base size.
        weight_decay: Of the base size; of matrices only.
        epsilon: Of the base size.

    Returns:
        Each with `params`, `lr`, `lr_scale`, `weight_decay` and `eps`. Two groups where nothing scales: matrices, then
        gains and biases.
    """
    groups: dict[tuple[bool, float, float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        matrix = parameter.dim() >= 2
        groups.setdefault((matrix, *_scales(model.multipliers, name, matrix)), []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": learning_rate * lr_scale,
            "lr_scale": lr_scale,
            "weight_decay": weight_decay * decay_scale,
            "eps": epsilon * epsilon_scale,
        }
        for (_, lr_scale, decay_scale, epsilon_scale), parameters in groups.items()
    ]


def _scales(by: Multipliers, name: str, matrix: bool) -> tuple[float, float, float]:
    """Of the learning rate, the weight decay and epsilon of a parameter."""
    if not is_hidden(name):
        return 1.0, float(matrix), by.epsilon
    if matrix:
        return by.hidden_learning_rate, by.hidden_weight_decay, by.hidden_epsilon
    return by.gain_learning_rate, 0.0, by.hidden_epsilon
