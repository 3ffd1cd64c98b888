"""The token shards of a corpus: found, opened when first touched, every block checked before it is served."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import fsspec
import numpy as np
import numpy.typing as npt

from dataeff.arrow import I64
from dataeff.checksums import REMEDY
from dataeff.errors import FormatError, InputError, PlanError
from dataeff.formats.arrow_tokens import Tokens, TokenShard, open_shard
from dataeff.kernel.rows import CHECKED, gather, positions
from dataeff.loader.cache import ShardCache
from dataeff.loader.order import Source
from dataeff.streams import is_local
from dataeff.tokenizers import token_dtype

FORMAT = "arrow_tokens"
MANIFEST = "manifest.json"
Damage: TypeAlias = Literal["raise", "quarantine"]
_BAD = 2
"""State of a block that is quarantined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFile:
    """What is known of a shard before it is opened."""

    path: str
    """Local path or URL."""
    source: str
    rows: int
    num_bytes: int
    crc32c: str
    """Of the whole file; empty where no manifest says it."""


class Shards:
    """Shards of one corpus, sorted by source and name.

    Args:
        corpus: Output directory of `dataeff run`, or a folder of token shards; a local path or an fsspec URL.
        damage: What to do with a block whose checksum does not hold: raise, or serve its rows as end-of-document tokens
            only, and say which they are.
        cache: Folder for shards that are not local; None makes one in the user's cache folder.
        cache_bytes: What it may hold.

    Raises:
        InputError: There are no token shards, or one is missing.
        FormatError: The manifest or a shard is damaged, or they contradict each other.
    """

    def __init__(
        self,
        corpus: str | Path,
        *,
        damage: Damage = "raise",
        cache: str | Path | None = None,
        cache_bytes: int = 1 << 36,
    ) -> None:
        if damage not in ("raise", "quarantine"):
            raise PlanError(f"damage is {damage!r}; it must be 'raise' or 'quarantine'")
        self.damage = damage
        self.files, self.epochs = find_shards(str(corpus))
        self._cache = None if is_local(self.files[0].path) else ShardCache(cache, cache_bytes)
        first = self._mapped(next(file for file in self.files if file.rows))
        self.sequence_length: int = first.tokens.shape[1]
        self.vocab_size, self.end_of_document = first.vocab_size, first.end_of_document
        self._fingerprint, self._block_bytes = first.fingerprint, first.block_bytes
        self._dtype = token_dtype(self.vocab_size)
        self.row_bytes = self.sequence_length * self._dtype.itemsize
        blocks = [-(-file.rows * self.row_bytes // self._block_bytes) for file in self.files]
        self._first_blocks = np.concatenate([[0], np.cumsum(blocks)]).astype(np.int64)
        self._reset()

    @property
    def digest(self) -> str:
        """Of what the shards hold; equal wherever the corpus lies."""
        listed = [[file.path.rsplit("/", 1)[-1], file.rows, file.crc32c] for file in self.files]
        return hashlib.blake2b(json.dumps([self.sequence_length, listed]).encode(), digest_size=8).hexdigest()

    @property
    def fetched(self) -> int:
        """Shards that this process fetched."""
        return self._cache.fetched if self._cache else 0

    def sources(self, holdout_rows: int = 0) -> tuple[Source, ...]:
        """Sources with their shards' rows, less the last `holdout_rows` rows of each.

        Raises:
            PlanError: A source has no more rows than that.
        """
        found = []
        numbers: dict[str, list[int]] = {}
        for number, file in enumerate(self.files):
            numbers.setdefault(file.source, []).append(number)
        for name, mine in numbers.items():
            rows = [self.files[number].rows for number in mine]
            if holdout_rows and sum(rows) <= holdout_rows:
                raise PlanError(f"holdout_rows is {holdout_rows}, but {name} has only {sum(rows)} rows: hold out fewer")
            left = holdout_rows
            for place in reversed(range(len(rows))):
                held = min(left, rows[place])
                rows[place] -= held
                left -= held
            found.append(Source(name=name, first_shard=mine[0], shard_rows=tuple(rows)))
        return tuple(found)

    def take(self, shards: I64, rows: I64) -> tuple[Tokens, npt.NDArray[np.bool_]]:
        """The tokens of some rows, in an array of its own.

        Returns:
            Tokens, shape (rows, sequence_length), and which rows are quarantined, shape (rows,).

        Raises:
            FormatError: One is in a damaged block; the message names shard, block and remedy.
        """
        out = np.empty((len(rows), self.sequence_length), self._dtype)
        data, bad = out.view(np.uint8), np.zeros(len(rows), np.bool_)
        done = 0
        while True:
            done = gather(
                shards, rows, done, self._addresses, self._first_blocks, self._states, self._block_bytes, data
            )
            if done == len(rows):
                return out, bad
            if not self._ready(int(shards[done]), int(rows[done])):
                out[done], bad[done] = self.end_of_document, True
                done += 1

    def boundaries(self, shards: I64, rows: I64) -> tuple[I64, I64]:
        """Position of each token in its document, and the document's number in the row (-1: padding), int64.

        Returns:
            `(position_ids, document_ids)`, shape (rows, sequence_length) each.
        """
        found = np.empty((2, len(rows), self.sequence_length), np.int64)
        for at, (number, row) in enumerate(zip(shards.tolist(), rows.tolist(), strict=True)):
            shard = self.shard(number)
            padding = shard.summary.padding_tokens if row == len(shard.tokens) - 1 else 0
            positions(shard.row_offsets, shard.starts, shard.continued, row, padding, found[0, at], found[1, at])
        return found[0], found[1]

    def check_cache(self, window_shards: int | None) -> None:
        """Check that the cache holds the shards that rows are shuffled among.

        Raises:
            PlanError: It does not: shards would be fetched again and again.
        """
        if self._cache is None:
            return
        sizes: dict[str, list[int]] = {}
        for file in self.files:
            sizes.setdefault(file.source, []).append(file.num_bytes)
        wanted = sum(sum(sorted(mine, reverse=True)[:window_shards]) for mine in sizes.values())
        if wanted > self._cache.limit_bytes:
            raise PlanError(
                f"rows are shuffled among shards of {wanted} bytes, but cache_bytes is {self._cache.limit_bytes}: "
                f"allow more, or set window_shards below {window_shards or max(map(len, sizes.values()))}"
            )

    def shard(self, number: int) -> TokenShard:
        """A shard, opened if it is not.

        Raises:
            FormatError: It is damaged, or of another run.
        """
        if number not in self._open:
            file = self.files[number]
            shard = self._mapped(file)
            if len(shard.tokens):
                _agree(file, "tokens a row", shard.tokens.shape[1], self.sequence_length)
                _agree(file, "vocabulary", shard.vocab_size, self.vocab_size)
                _agree(file, "fingerprint", shard.fingerprint, self._fingerprint)
            self._open[number] = shard
            self._addresses[number] = shard.tokens.ctypes.data
            self._close_evicted()
        return self._open[number]

    def _mapped(self, file: ShardFile) -> TokenShard:
        path = self._cache.fetch(file.path, file.num_bytes, file.crc32c) if self._cache else file.path
        shard = open_shard(path)
        _agree(file, "number of rows", len(shard.tokens), file.rows)
        if shard.source is not None:
            _agree(file, "source", shard.source, file.source)
        return shard

    def __getstate__(self) -> dict[str, Any]:
        # Another process opens its own maps, and checks what it touches itself.
        own = ("_open", "_addresses", "_states")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def _reset(self) -> None:
        self._open: dict[int, TokenShard] = {}
        self._addresses = np.zeros(len(self.files), np.uint64)
        self._states = np.zeros(int(self._first_blocks[-1]), np.uint8)

    def _close_evicted(self) -> None:
        for number in [
            number for number in self._open if self._cache and not self._cache.holds(self.files[number].path)
        ]:
            del self._open[number]
            self._addresses[number] = 0
            self._states[self._first_blocks[number] : self._first_blocks[number + 1]] = 0

    def _ready(self, number: int, row: int) -> bool:
        """Check the blocks that a row touches; whether it can be served."""
        shard = self.shard(number)
        start, stop = row * self.row_bytes, (row + 1) * self.row_bytes
        first, last = start // self._block_bytes, (stop - 1) // self._block_bytes
        good = True
        for block in range(first, last + 1):
            state = self._first_blocks[number] + block
            if self._states[state] == 0:
                wrong = shard.block_damage(block)
                if wrong and self.damage == "raise":
                    raise FormatError(
                        f"{self.files[number].path}: {wrong}; or go on without its rows with damage='quarantine'"
                    )
                self._states[state] = _BAD if wrong else CHECKED
            good &= bool(self._states[state] == CHECKED)
        return good


def _agree(file: ShardFile, what: str, found: object, wanted: object) -> None:
    """Check that a shard is the one that the manifest means, and belongs to the others."""
    if found != wanted:
        raise FormatError(
            f"{file.path}: its {what} is {found}, but the manifest and the other shards say {wanted}: it is of another "
            f"run, or the manifest is; {REMEDY}"
        )


def find_shards(corpus: str) -> tuple[list[ShardFile], dict[str, float]]:
    """Token shards of a corpus, and how often each source is to be seen an epoch, by its manifest.

    Raises:
        InputError: There are none, or one that the manifest names is missing.
        FormatError: The manifest is damaged.
    """
    files_at, root = fsspec.core.url_to_fs(corpus)
    names = _listing(files_at, root, corpus)
    if MANIFEST not in names:
        local = [f"{root}/{name}" for name in sorted(names) if name.endswith(".arrow") and is_local(corpus)]
        return _with_rows([_look(path) for path in local], corpus), {}
    folder = f"{root}/shards/{FORMAT}"
    try:
        with files_at.open(f"{root}/{MANIFEST}", "rb") as source:
            content = json.load(source)
        entries: Sequence[Mapping[str, Any]] = content["shards"].get(FORMAT, [])
        mixture = (content.get("mixture") or {}).get("sources", {})
        epochs = {name: share["epochs"] for name, share in mixture.items()}
        found = [
            ShardFile(
                path=_address(files_at, f"{folder}/{entry['file']}", corpus),
                source=entry["source"],
                rows=entry["rows"],
                num_bytes=entry["num_bytes"],
                crc32c=entry["crc32c"],
            )
            for entry in entries
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{corpus}/{MANIFEST} is damaged ({error}): run the recipe again") from error
    present = _listing(files_at, folder, corpus) if found else set()
    missing = [entry["file"] for entry in entries if entry["file"] not in present]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(entries)} shards are missing from {corpus}/shards/{FORMAT}, the first is "
            f"{missing[0]}: restore it, or run the recipe again (finished shards are not redone)"
        )
    return _with_rows(found, corpus), epochs


def _with_rows(files: list[ShardFile], corpus: str) -> list[ShardFile]:
    """Sorted by source and path.

    Raises:
        InputError: There are no rows.
    """
    if not any(file.rows for file in files):
        raise InputError(
            f"{corpus} holds no token rows: let its recipe end with Shard(ArrowTokens()), and give the --out of its run"
        )
    return sorted(files, key=lambda file: (file.source, file.path))


def _listing(files_at: Any, folder: str, corpus: str) -> set[str]:
    try:
        return {str(name).rstrip("/").rsplit("/", 1)[-1] for name in files_at.ls(folder, detail=False)}
    except OSError as error:
        raise InputError(f"{corpus} cannot be read ({error}): give the --out of a `dataeff run`, or its URL") from error


def _address(files_at: Any, path: str, corpus: str) -> str:
    return path if is_local(corpus) else str(files_at.unstrip_protocol(path))


def _look(path: str) -> ShardFile:
    shard = open_shard(path)
    return ShardFile(
        path=path,
        source=shard.source or "",
        rows=len(shard.tokens),
        num_bytes=Path(path).stat().st_size,
        crc32c="",
    )
