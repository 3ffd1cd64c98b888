"""A decoder-only transformer, small enough to read in one sitting."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from dataeff.errors import PlanError
from dataeff.train.parametrisation import Multipliers, Ratios, Rules, is_hidden, multipliers

IGNORED = -100
"""Target of a position that no loss is taken at."""
_ROTARY_BASE = 10_000.0
_INIT_STD = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The shape of a model."""

    vocab_size: int
    sequence_length: int
    width: int = 128
    layers: int = 4
    heads: int = 4
    norm: Literal["rms", "layer"] = "rms"
    positions: Literal["rotary", "learned"] = "rotary"
    mlp: Literal["gelu", "swiglu"] = "gelu"
    tied_embeddings: bool = True
    """Use the input embedding as the output layer."""
    mask_documents: bool = False
    """Let a token attend to its own document only, and count positions from that document's start."""
    recompute: bool = False
    """Activation checkpointing: keep only what enters a block, compute the rest again in the backward pass."""
    parametrisation: Literal["standard", "mup"] = "standard"
    """How initialisation, optimizer and outputs follow the size; see `dataeff.train.parametrisation`. When width grows
    from `base_width`, let `heads` grow with it, so that the head width stays what it was."""
    base_width: int = 0
    """For mup: the width that the hyper-parameters were tuned at; 0 for `width` itself, which scales nothing."""
    base_layers: int = 0
    """For mup: the layers that they were tuned at; 0 for no scaling with depth."""
    base_head_width: int = 0
    """For mup where the head width grows too: the one that they were tuned at; 0 for that of this model."""
    depth_alpha: float = 1.0
    """For `base_layers`: with which power of depth a layer's part in the residual stream shrinks; 1 is CompleteP."""
    input_scale: float = 1.0
    """Of the embeddings; tuned at the base size."""
    output_scale: float = 1.0
    """Of the logits; tuned at the base size."""

    def __post_init__(self) -> None:
        for name in ("vocab_size", "sequence_length", "width", "layers", "heads"):
            if getattr(self, name) < 1:
                raise PlanError.out_of_range(self, name, "1 or more")
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise PlanError.out_of_range(self, "width", f"an even multiple of heads = {self.heads}")
        for name, known in (
            ("norm", "rms layer"),
            ("positions", "rotary learned"),
            ("mlp", "gelu swiglu"),
            ("parametrisation", "standard mup"),
        ):
            if getattr(self, name) not in known.split():
                raise PlanError.out_of_range(self, name, " or ".join(known.split()))
        for name in ("base_width", "base_layers", "base_head_width"):
            if getattr(self, name) < 0:
                raise PlanError.out_of_range(self, name, "0 or more")
            if getattr(self, name) and self.parametrisation == "standard":
                raise PlanError.out_of_range(self, name, "0 unless parametrisation is 'mup': nothing else scales")
        if not 0.5 <= self.depth_alpha <= 1:
            raise PlanError.out_of_range(self, "depth_alpha", "in [0.5, 1]")
        for name in ("input_scale", "output_scale"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise PlanError.out_of_range(self, name, "a finite number above 0")

    @property
    def head_width(self) -> int:
        """Of one attention head."""
        return self.width // self.heads

    @property
    def ratios(self) -> Ratios:
        """To the base size."""
        return Ratios(
            width=self.width / (self.base_width or self.width),
            head_width=self.head_width / (self.base_head_width or self.head_width),
            layers=self.layers / (self.base_layers or self.layers),
            depth_alpha=self.depth_alpha,
        )


class GPT(nn.Module):
    """Token ids to the logits of the next token.

    Args:
        settings: Its shape.
        rules: How it scales from its base size; others than these are for tests that must fail.
    """

    def __init__(self, settings: ModelSettings, rules: Rules | None = None) -> None:
        super().__init__()
        self.settings = settings
        self.multipliers = multipliers(settings.ratios, rules or Rules())
        self.embedding = nn.Embedding(settings.vocab_size, settings.width)
        self.positions = (
            nn.Embedding(settings.sequence_length, settings.width) if settings.positions == "learned" else None
        )
        blocks = [Block(settings, self.multipliers) for _ in range(settings.layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = _norm(settings)
        self.head = nn.Linear(settings.width, settings.vocab_size, bias=False)
        hidden_std = _INIT_STD * self.multipliers.hidden_init
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=hidden_std if is_hidden(name) else _INIT_STD)
        for block in blocks:
            # Each layer adds twice to the residual stream; GPT-2's scaling keeps its variance. What depth beyond the
            # base needs, the residual multiplier does.
            for layer in (block.attention.out, block.mlp.out):
                nn.init.normal_(layer.weight, std=hidden_std / (2 * (settings.base_layers or settings.layers)) ** 0.5)
        if settings.tied_embeddings:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor, position_ids: Tensor | None = None, document_ids: Tensor | None = None) -> Tensor:
        """Logits, shape (rows, tokens, vocab_size).

        Args:
            tokens: Ids, int64, shape (rows, tokens).
            position_ids, document_ids: As the loader gives them, same shape; used with `mask_documents` only.
        """
        mask, places = None, torch.arange(tokens.shape[1], device=tokens.device)[None]
        if self.settings.mask_documents:
            if position_ids is None or document_ids is None:
                raise PlanError("mask_documents needs position_ids and document_ids: load with boundaries=True")
            places = position_ids.clamp(max=self.settings.sequence_length - 1) if self.positions else position_ids
            mask = (document_ids[:, None, :, None] == document_ids[:, None, None, :]).tril()
        hidden = self.embedding(tokens)
        if self.positions is not None:
            hidden = hidden + self.positions(places)
        hidden = scaled(hidden, self.settings.input_scale)
        angles = None if self.positions is not None else _angles(places, self.settings.head_width)
        for block in self.blocks:
            if self.settings.recompute and self.training:
                hidden = checkpoint(block, hidden, angles, mask, use_reentrant=False)
            else:
                hidden = block(hidden, angles, mask)
        logits: Tensor = self.head(scaled(self.norm(hidden), self.settings.output_scale * self.multipliers.readout))
        return logits


class Block(nn.Module):
    """Attention, then an MLP, each added to what it read."""

    def __init__(self, settings: ModelSettings, by: Multipliers) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = _norm(settings), _norm(settings)
        self.attention, self.mlp = Attention(settings, by.attention), MLP(settings)
        self.residual = by.residual

    def forward(self, hidden: Tensor, angles: Tensor | None, mask: Tensor | None) -> Tensor:
        """Same shape as `hidden`, (rows, tokens, width)."""
        hidden = hidden + scaled(self.attention(self.attention_norm(hidden), angles, mask), self.residual)
        out: Tensor = hidden + scaled(self.mlp(self.mlp_norm(hidden)), self.residual)
        return out


class Attention(nn.Module):
    """Causal self-attention by `scaled_dot_product_attention`."""

    def __init__(self, settings: ModelSettings, multiplier: float) -> None:
        super().__init__()
        self.scale = multiplier / math.sqrt(settings.head_width)
        self.heads = settings.heads
        self.qkv = nn.Linear(settings.width, 3 * settings.width, bias=False)
        self.out = nn.Linear(settings.width, settings.width, bias=False)

    def forward(self, hidden: Tensor, angles: Tensor | None, mask: Tensor | None) -> Tensor:
        """Same shape as `hidden`."""
        rows, length, width = hidden.shape
        query, key, value = self.qkv(hidden).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if angles is not None:
            query, key = rotated(query, angles), rotated(key, angles)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, scale=self.scale
        )
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return out


class MLP(nn.Module):
    """GELU of four times the width, or SwiGLU of 8/3 of it, which has as many parameters (Shazeer 2020)."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.gated = settings.mlp == "swiglu"
        inner = -(-8 * settings.width // 3 // 8) * 8 if self.gated else 4 * settings.width
        self.up = nn.Linear(settings.width, (2 if self.gated else 1) * inner, bias=False)
        self.out = nn.Linear(inner, settings.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Same shape as `hidden`."""
        inner = self.up(hidden)
        if self.gated:
            gate, inner = inner.chunk(2, dim=-1)
            inner = functional.silu(gate) * inner
        else:
            inner = functional.gelu(inner)
        out: Tensor = self.out(inner)
        return out


def next_token_loss(
    model: nn.Module,
    tokens: Tensor,
    position_ids: Tensor | None = None,
    document_ids: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sum of the losses of a batch in nats, and how many tokens were predicted.

    The last token of a row predicts nothing. With `document_ids`, nor is one predicted that belongs to another document
    than the token before it, or to padding.

    Args:
        model: `GPT`, or something around it.
        tokens: Ids, int64, shape (rows, tokens).
        position_ids, document_ids: Same shape, or None.

    Returns:
        Two scalars on the model's device: no synchronisation.
    """
    targets = tokens[:, 1:]
    if document_ids is not None:
        crosses = (document_ids[:, 1:] != document_ids[:, :-1]) | (document_ids[:, 1:] < 0)
        targets = targets.masked_fill(crosses, IGNORED)
    logits = model(tokens, position_ids, document_ids)[:, :-1]
    loss = functional.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return loss, (targets != IGNORED).sum()


def num_parameters(model: GPT, *, embeddings: bool = True) -> int:
    """Parameters, tied ones once; without `embeddings`, less what is only looked up.

    What is only looked up: learned positions, and the token embedding where the output layer has weights of its own.
    """
    count = sum(parameter.numel() for parameter in model.parameters())
    if not embeddings:
        count -= model.positions.weight.numel() if model.positions is not None else 0
        count -= 0 if model.settings.tied_embeddings else model.embedding.weight.numel()
    return count


def flops_per_token(model: GPT) -> float:
    """Forward and backward, without recomputation: 6 N + 12 L H Q T (PaLM, Chowdhery et al. 2022, appendix B).

    N: parameters that are multiplied with; L layers, H heads of width Q, T tokens a row. The attention term counts the
    whole square, though half of it is masked.
    """
    settings = model.settings
    attention = 12 * settings.layers * settings.heads * settings.head_width * settings.sequence_length
    return 6.0 * num_parameters(model, embeddings=False) + attention


def scaled(hidden: Tensor, by: float) -> Tensor:
    """`hidden` times `by`; itself where that is 1, which costs nothing."""
    return hidden if by == 1.0 else hidden * by


def rotated(vectors: Tensor, angles: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021): pairs (i, i + half) turned by their angles.

    Args:
        vectors: Shape (rows, heads, tokens, head width).
        angles: Shape (rows or 1, tokens, head width / 2).
    """
    cosine, sine = angles.cos()[:, None].to(vectors.dtype), angles.sin()[:, None].to(vectors.dtype)
    first, second = vectors.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def _angles(places: Tensor, head_width: int) -> Tensor:
    powers = torch.arange(0, head_width, 2, device=places.device, dtype=torch.float32) / head_width
    return places[..., None].float() / _ROTARY_BASE**powers


def _norm(settings: ModelSettings) -> nn.Module:
    return nn.RMSNorm(settings.width) if settings.norm == "rms" else nn.LayerNorm(settings.width)
