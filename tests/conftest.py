"""Fixtures for what lies beside the checkout: real text, published tables, a real tokenizer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The gate tries the same examples every time, so that it says something of the change and nothing of the day; a
# person's own runs look further. No test fails for being slow: machines are shared, and compiled code compiles first.
settings.register_profile("own", deadline=None)
settings.register_profile("gate", deadline=None, derandomize=True)
settings.load_profile("gate" if os.environ.get("CI") else "own")

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes the fixture `corpora`, so that `-m "not corpora"` leaves out all of it."""
    for item in items:
        if "corpora" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.corpora)


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of real text; skips where it is absent."""
    if not (SHARED / "corpora").is_dir():
        pytest.skip("shared/corpora is not beside the checkout")
    return SHARED / "corpora"


@pytest.fixture(scope="session")
def gpt2_tokenizer() -> Path:
    """The GPT-2 tokenizer file; skips where it is absent."""
    if not (SHARED / "tokenizers" / "gpt2.json").is_file():
        pytest.skip("shared/tokenizers is not beside the checkout")
    return SHARED / "tokenizers" / "gpt2.json"
