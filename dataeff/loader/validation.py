"""A validation set that several runs share: token rows by source, and which of their tokens count.

One Arrow IPC file, small enough to be in memory. A token that some candidate trained on, as part of a longer passage,
does not count for any of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataeff.arrow import U32
from dataeff.errors import FormatError
from dataeff.manifest import committed

_KEY = b"dataeff"
_VERSION = b"validation 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRows:
    """Rows of one source."""

    tokens: U32
    """Shape (rows, sequence_length)."""
    counts: npt.NDArray[np.bool_]
    """Whether a token's loss is taken, same shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationSet:
    """All sources' rows."""

    sources: Mapping[str, ValidationRows]

    @property
    def sequence_length(self) -> int:
        """Tokens a row."""
        return int(next(iter(self.sources.values())).tokens.shape[1])

    @property
    def digest(self) -> str:
        """Of all tokens and which of them count."""
        state = hashlib.blake2b(digest_size=8)
        for name, rows in self.sources.items():
            state.update(f"{name}\0{rows.tokens.shape}\0".encode())
            state.update(rows.tokens.tobytes())
            state.update(rows.counts.tobytes())
        return state.hexdigest()


def write_validation(path: Path, content: ValidationSet) -> None:
    """Write the file, whole or not at all."""
    length = content.sequence_length
    tokens = np.concatenate([rows.tokens for rows in content.sources.values()])
    counts = np.concatenate([rows.counts for rows in content.sources.values()])
    names = [name for name, rows in content.sources.items() for _ in range(len(rows.tokens))]
    table = pa.table(
        {
            "source": pa.array(names, pa.string()),
            "tokens": pa.FixedSizeListArray.from_arrays(pa.array(tokens.reshape(-1)), length),
            "counts": pa.FixedSizeListArray.from_arrays(pa.array(counts.reshape(-1)), length),
        }
    ).replace_schema_metadata({_KEY: _VERSION})
    with committed(path) as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_validation(path: Path) -> ValidationSet:
    """Read the file.

    Raises:
        FormatError: It is not there, damaged, or no validation set.
    """
    try:
        table = pa.ipc.open_file(pa.py_buffer(path.read_bytes())).read_all()
        if (table.schema.metadata or {}).get(_KEY) != _VERSION:
            raise ValueError("it is no validation set of this version")
        tokens, counts = table.column("tokens").combine_chunks(), table.column("counts").combine_chunks()
        length = tokens.type.list_size
        ids = tokens.values.to_numpy().reshape(-1, length)
        counted = counts.values.to_numpy(zero_copy_only=False).reshape(-1, length)
        names = np.array(table.column("source").to_pylist())
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise FormatError(f"{path} cannot be read as a validation set ({error}): make the comparison again") from error
    return ValidationSet(
        sources={
            str(name): ValidationRows(tokens=ids[names == name], counts=counted[names == name])
            for name in dict.fromkeys(names.tolist())
        }
    )
