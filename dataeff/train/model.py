"""A decoder-only transformer, small enough to read in one sitting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from dataeff.errors import PlanError

IGNORED = -100
"""Target of a position that no loss is taken at."""
_ROTARY_BASE = 10_000.0


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

    def __post_init__(self) -> None:
        for name in ("vocab_size", "sequence_length", "width", "layers", "heads"):
            if getattr(self, name) < 1:
                raise PlanError.out_of_range(self, name, "1 or more")
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise PlanError.out_of_range(self, "width", f"an even multiple of heads = {self.heads}")
        for name, known in (("norm", "rms layer"), ("positions", "rotary learned"), ("mlp", "gelu swiglu")):
            if getattr(self, name) not in known.split():
                raise PlanError.out_of_range(self, name, " or ".join(known.split()))

    @property
    def head_width(self) -> int:
        """Of one attention head."""
        return self.width // self.heads


class GPT(nn.Module):
    """Token ids to the logits of the next token.

    Args:
        settings: Its shape.
    """

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = nn.Embedding(settings.vocab_size, settings.width)
        self.positions = (
            nn.Embedding(settings.sequence_length, settings.width) if settings.positions == "learned" else None
        )
        blocks = [Block(settings) for _ in range(settings.layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = _norm(settings)
        self.head = nn.Linear(settings.width, settings.vocab_size, bias=False)
        self.apply(_initialise)
        for block in blocks:
            # Each layer adds twice to the residual stream; GPT-2's scaling keeps its variance.
            for layer in (block.attention.out, block.mlp.out):
                nn.init.normal_(layer.weight, std=0.02 / (2 * settings.layers) ** 0.5)
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
        angles = None if self.positions is not None else _angles(places, self.settings.head_width)
        for block in self.blocks:
            if self.settings.recompute and self.training:
                hidden = checkpoint(block, hidden, angles, mask, use_reentrant=False)
            else:
                hidden = block(hidden, angles, mask)
        logits: Tensor = self.head(self.norm(hidden))
        return logits


class Block(nn.Module):
    """Attention, then an MLP, each added to what it read."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = _norm(settings), _norm(settings)
        self.attention, self.mlp = Attention(settings), MLP(settings)

    def forward(self, hidden: Tensor, angles: Tensor | None, mask: Tensor | None) -> Tensor:
        """Same shape as `hidden`, (rows, tokens, width)."""
        hidden = hidden + self.attention(self.attention_norm(hidden), angles, mask)
        out: Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return out


class Attention(nn.Module):
    """Causal self-attention by `scaled_dot_product_attention`."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.qkv = nn.Linear(settings.width, 3 * settings.width, bias=False)
        self.out = nn.Linear(settings.width, settings.width, bias=False)

    def forward(self, hidden: Tensor, angles: Tensor | None, mask: Tensor | None) -> Tensor:
        """Same shape as `hidden`."""
        rows, length, width = hidden.shape
        query, key, value = self.qkv(hidden).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if angles is not None:
            query, key = rotated(query, angles), rotated(key, angles)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None)
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


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
