"""A tokenizer trained on the corpus itself: the default that needs no download."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from dataeff.errors import PlanError
from dataeff.pieces import pieces_of
from dataeff.tokenizer_json import JsonEncoder, encoder

NUM_BYTES = 256
MAX_VOCAB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedBpe:
    """Byte-level BPE trained on a seeded sample of the corpus; words are split as GPT-2 splits them.

    It is made with the `tokenizers` library and kept in its format, so that library, and all that read its files, can
    use it. The same sample gives the same file, whatever the number of threads.
    """

    vocab_size: int = 16_384
    """Ids at most, the 256 bytes and the end-of-document token included; a small sample gives fewer."""
    min_frequency: int = 2
    """Times that a pair must occur to be merged."""
    sample_bytes: int = 32_000_000
    """Text to train on, drawn at random over documents; all of it where the corpus has less."""
    end_of_document: str = "<|endoftext|>"
    """Token that ends a document; its id is 0."""

    def __post_init__(self) -> None:
        if not NUM_BYTES < self.vocab_size <= MAX_VOCAB:
            raise PlanError.out_of_range(self, "vocab_size", f"in [{NUM_BYTES + 1}, {MAX_VOCAB}]")
        if self.min_frequency < 1:
            raise PlanError.out_of_range(self, "min_frequency", "1 or more")
        if self.sample_bytes < 1:
            raise PlanError.out_of_range(self, "sample_bytes", "1 or more bytes")
        if len(self.end_of_document) < 2:
            raise PlanError.out_of_range(self, "end_of_document", "of 2 characters or more, as '<|endoftext|>'")

    def prepare(self, sample: Iterable[str]) -> bytes:
        """Train, and return the tokenizer file.

        Args:
            sample: Texts, read once; a huge one is cut where that changes nothing.

        Raises:
            PlanError: `end_of_document` is something that the tokenizer makes out of text.
        """
        tokenizer = tokenizers.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size,
            min_frequency=self.min_frequency,
            special_tokens=[self.end_of_document],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator((piece for text in sample for piece in pieces_of(text)), trainer=trainer)
        prepared: bytes = tokenizer.to_str().encode()
        self._check_merges(prepared)
        return prepared

    def load(self, prepared: bytes) -> JsonEncoder:
        """The encoder made from the tokenizer file.

        Raises:
            PlanError: It is not one.
        """
        return encoder(prepared, self.end_of_document)

    def _check_merges(self, prepared: bytes) -> None:
        for merge in json.loads(prepared)["model"]["merges"]:
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            if left + right == self.end_of_document:
                raise PlanError(
                    f"the corpus holds {self.end_of_document!r} so often that it became a token by itself, so it "
                    "cannot mark the end of a document: choose an end_of_document that is no word, as '<|endoftext|>'"
                )
