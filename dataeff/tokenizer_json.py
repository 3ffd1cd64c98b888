"""Encode with a tokenizer in the `tokenizers` library's JSON format, by the fastest way that is proved equal.

`fastokens`, where it is installed, reads the same file and is 10 to 30 times faster. It is used only after its ids
were equal to those of `tokenizers` on a probe: text of many scripts, spaces and specials, and text spelt from
the vocabulary itself. The probe depends on the file alone, so all workers of a run decide alike.
"""

from __future__ import annotations

import importlib
import itertools
import json
import random
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa
import tokenizers

from dataeff.arrow import I64, U32
from dataeff.cuts import provable
from dataeff.errors import PlanError
from dataeff.pieces import EncodeStrings, encode_rows

_PROBE_SEED = 20230417
_PROBE_IDS = 60_000
_PROBE_TEXTS = (
    "",
    " ",
    "   leading,  inner   and trailing   ",
    "tab\tCR LF\r\nCR\rLF\n\n\nU+0085\x85U+2028\u2028U+2029\u2029end\x1c\x1d\x0b\x0c",
    "NUL\x00inside, BOM \ufeff, replacement \ufffd, noncharacter \uffff, private \ue000, tag \U000e0041",
    "It's we'll I'VE they'd DON'T 'tis rock'n'roll ’s l'été",
    "0 12 345 6789 1234567890123456789 3.14 1,000,000 ½ Ⅷ ٣٤ १२ ²³",
    "def f(x):\n\treturn {'a': [x ** 2, -1e-9]}  # comment\n\n\n        pass;;;!!!???...----====",
    "Zażółć gęślą jaźń, Größe, naïve café / nai\u0308ve cafe\u0301, İstanbul ıI ſß ǅ",
    "Ελληνικά ΣΊΣΥΦΟΣ, Русский язык, עברית, العربية لُغَة, فارسی\u200cها",
    "हिन्दी भाषा क्षत्रिय, বাংলা, தமிழ், ภาษาไทยไม่มีช่องว่าง, ລາວ, ខ្មែរ, မြန်မာ, བོད་སྐད་",
    "漢字仮名交じり文。カタカナ、ﾊﾝｶｸ。中文，没有空格！한국어 문장입니다. 한글 \u1112\u1161\u11ab 𠮷野家",
    "👨‍👩‍👧‍👦 👍🏽 🇩🇪 ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 e\u0301\u0327\u0323 Z̸̡̢a̶l̷g̵o̷",
    "<|endoftext|> <|im_start|>user<|im_end|> </s> <s> [CLS] [SEP] <unk> <pad> <|endoftext|><|endoftext|>",
    "a" * 3000 + " " * 3000 + "\n" * 3000 + "!" * 3000 + "ab" * 1500 + "字" * 1000 + "1" * 1000,
)


@dataclass(frozen=True, slots=True)
class JsonEncoder:
    """A ready tokenizer; safe to use from several threads."""

    vocab_size: int
    end_of_document: int
    engine: str
    """Library and version that does the work."""
    _encode: EncodeStrings
    _cut: bool

    def encode(self, text: pa.Array) -> tuple[U32, I64]:
        """Ids of every row of a large_string array, each row closed by `end_of_document`.

        Returns:
            `(ids, offsets)`, the offsets of shape (rows + 1,).

        Raises:
            InputError: A row is not UTF-8, or holds text that the tokenizer turns into `end_of_document`.
        """
        return encode_rows(text, self._encode, end_of_document=self.end_of_document, cut=self._cut)


def encoder(prepared: bytes, end_of_document: str) -> JsonEncoder:
    """The encoder made from a tokenizer file.

    Special tokens in a document are text: none becomes the token that it spells. Truncation, padding, templates and
    dropout that the file may ask for are for other uses and are off.

    Args:
        prepared: Content of the file.
        end_of_document: The token that ends a document; one that the vocabulary lacks gets a new id at its end.

    Raises:
        PlanError: The file is not a tokenizer, or it makes `end_of_document` out of text.
    """
    config = _text_only(_parsed(prepared), end_of_document)
    slow = _slow(config)
    ids = slow.get_vocab(with_added_tokens=True)
    size = max(ids.values(), default=-1) + 1
    end = ids.get(end_of_document, size)
    _check_end(slow, end, end_of_document)
    encode, engine = _with_tokenizers(slow), f"tokenizers {tokenizers.__version__}"
    fast = _fast(config)
    if fast is not None and _equal(encode, fast, _probe(slow, size)):
        encode, engine = fast, f"fastokens {version('fastokens')}"
    return JsonEncoder(max(size, end + 1), end, engine, encode, provable(config))


def _parsed(prepared: bytes) -> dict[str, Any]:
    try:
        config = json.loads(prepared)
        tokenizers.Tokenizer.from_str(json.dumps(config))
    except Exception as error:  # the library raises bare Exception
        raise PlanError(
            f"this is not a tokenizer file ({error}); it must be the JSON that `tokenizers.Tokenizer.save` writes, "
            "often called tokenizer.json"
        ) from error
    return dict(config)


def _text_only(config: dict[str, Any], end_of_document: str) -> dict[str, Any]:
    """The same tokenizer without what is not a plain function of text."""
    added = [
        {**token, "special": token["special"] or token["content"] == end_of_document}
        for token in config.get("added_tokens") or ()
    ]
    model = {**config["model"], "dropout": None} if "dropout" in config["model"] else config["model"]
    off = {"truncation": None, "padding": None, "post_processor": None}
    return {**config, **off, "added_tokens": added, "model": model}


def _slow(config: dict[str, Any]) -> Any:
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(config))
    tokenizer.encode_special_tokens = True
    return tokenizer


def _check_end(slow: Any, end: int, token: str) -> None:
    for text in (token, f" {token}", f"x{token}x", f"x {token} x"):
        if end in slow.encode(text, add_special_tokens=False).ids:
            raise PlanError(
                f"this tokenizer turns the text {text!r} into its token {token!r}, so that could not mark the end of a "
                "document: name another `end_of_document`, one that its vocabulary does not have"
            )


def _with_tokenizers(slow: Any) -> EncodeStrings:
    def encode(strings: list[str]) -> tuple[U32, I64]:
        ids = [encoding.ids for encoding in slow.encode_batch_fast(strings, add_special_tokens=False)]
        counts = np.fromiter(map(len, ids), np.int64, len(ids))
        return np.fromiter(itertools.chain.from_iterable(ids), np.uint32, int(counts.sum())), counts

    return encode


def _fast(config: dict[str, Any]) -> EncodeStrings | None:
    """The same tokenizer in `fastokens`, or None where that is not installed or does not know it."""
    try:
        tokenizer = importlib.import_module("fastokens").Tokenizer.from_json_str(json.dumps(config))
    except (ImportError, ValueError):
        return None

    def encode(strings: list[str]) -> tuple[U32, I64]:
        ids, offsets = tokenizer.encode_batch_flat(strings, add_special_tokens=False, split_special_tokens=True)
        bounds = np.frombuffer(offsets, np.int64)
        return np.frombuffer(ids, np.uint32), bounds[1:] - bounds[:-1]

    return encode


def _probe(slow: Any, size: int) -> list[str]:
    """Texts on which two encoders are compared: fixed ones, and random walks through the vocabulary."""
    chosen = random.Random(_PROBE_SEED)
    walks = [[chosen.randrange(size) for _ in range(100)] for _ in range(_PROBE_IDS // 100)]
    return [*_PROBE_TEXTS, *slow.decode_batch(walks, skip_special_tokens=False)]


def _equal(one: EncodeStrings, other: EncodeStrings, texts: list[str]) -> bool:
    try:
        (ids, counts), (other_ids, other_counts) = one(texts), other(texts)
    except (ValueError, RuntimeError, TypeError, AttributeError):
        return False
    return np.array_equal(ids, other_ids) and np.array_equal(counts, other_counts)
