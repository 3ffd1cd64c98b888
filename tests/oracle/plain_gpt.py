"""The model without parametrisation, and what muP asks of each parameter, both as plainly as can be said."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from dataeff.train.model import ModelSettings


def plain_gpt(settings: ModelSettings) -> nn.ModuleDict:
    """The standard model's modules, with the weights that it draws from torch's generator."""
    width, head_width = settings.width, settings.width // settings.heads
    assert head_width * settings.heads == width
    norm = nn.RMSNorm if settings.norm == "rms" else nn.LayerNorm
    inner = math.ceil(8 * width / 3 / 8) * 8 if settings.mlp == "swiglu" else 4 * width
    up = 2 * inner if settings.mlp == "swiglu" else inner

    def linear(inputs: int, outputs: int) -> nn.Linear:
        return nn.Linear(inputs, outputs, bias=False)

    modules: dict[str, nn.Module] = {"embedding": nn.Embedding(settings.vocab_size, width)}
    if settings.positions == "learned":
        modules["positions"] = nn.Embedding(settings.sequence_length, width)
    for number in range(settings.layers):
        modules[f"norm {number}"], modules[f"mlp norm {number}"] = norm(width), norm(width)
        modules[f"qkv {number}"], modules[f"out {number}"] = linear(width, 3 * width), linear(width, width)
        modules[f"up {number}"], modules[f"down {number}"] = linear(width, up), linear(inner, width)
    modules["norm"], modules["head"] = norm(width), linear(width, settings.vocab_size)
    for module in modules.values():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
    for number in range(settings.layers):
        for name in ("out", "down"):
            nn.init.normal_(modules[f"{name} {number}"].weight, std=0.02 / (2 * settings.layers) ** 0.5)
    if settings.tied_embeddings:
        modules["head"].weight = modules["embedding"].weight
    return nn.ModuleDict(modules)


def plain_logits(model: nn.ModuleDict, settings: ModelSettings, tokens: Tensor) -> Tensor:
    """Logits of the standard model, shape (rows, tokens, vocab_size)."""
    rows, length = tokens.shape
    hidden = model["embedding"](tokens)
    if settings.positions == "learned":
        hidden = hidden + model["positions"](torch.arange(length)[None])
    for number in range(settings.layers):
        qkv = model[f"qkv {number}"](model[f"norm {number}"](hidden))
        query, key, value = qkv.view(rows, length, 3, settings.heads, -1).permute(2, 0, 3, 1, 4)
        if settings.positions == "rotary":
            query, key = _turned(query), _turned(key)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + model[f"out {number}"](mixed.transpose(1, 2).reshape(rows, length, -1))
        inner = model[f"up {number}"](model[f"mlp norm {number}"](hidden))
        if settings.mlp == "swiglu":
            gate, inner = inner.chunk(2, dim=-1)
            inner = functional.silu(gate) * inner
        else:
            inner = functional.gelu(inner)
        hidden = hidden + model[f"down {number}"](inner)
    return model["head"](model["norm"](hidden))


def _turned(vectors: Tensor) -> Tensor:
    length, width = vectors.shape[-2:]
    angles = torch.arange(length)[:, None].float() / 10_000.0 ** (torch.arange(0, width, 2).float() / width)
    first, second = vectors.chunk(2, dim=-1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def asked_of(name: str, settings: ModelSettings) -> dict[str, float]:
    """The table of muP with CompleteP's depth: what a parameter is given, by its name, relative to the base size.

    Returns:
        `std`: of its initial values, NaN for gains and biases. `lr`, `eps`, `decay`: times the base's; `decay` of gains
        and biases is 0.
    """
    wide = settings.width / settings.base_width if settings.base_width else 1
    deep = settings.layers / settings.base_layers if settings.base_layers else 1
    alpha = settings.depth_alpha
    vector = "norm" in name
    if not name.startswith("blocks."):
        return {"std": math.nan if vector else 0.02, "lr": 1, "decay": 0 if vector else 1, "eps": 1 / wide}
    eps = 1 / (wide * deep**alpha)
    if vector:
        return {"std": math.nan, "lr": deep ** (alpha - 1), "decay": 0, "eps": eps}
    std = 0.02 / math.sqrt(wide)
    if name.endswith(".out.weight"):
        std /= math.sqrt(2 * (settings.base_layers or settings.layers))
    return {"std": std, "lr": deep ** (alpha - 1) / wide, "decay": wide, "eps": eps}
