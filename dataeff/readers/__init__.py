"""Readers: files to rows of raw columns. One file format a module, found through the registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from dataeff.inputs import InputFile, Reject, Rows, Slice

__all__ = ["InputFile", "Reader", "Reject", "Rows", "Slice"]


class Reader(Protocol):
    """What a module in this folder provides, as a frozen keyword-only dataclass named after its file.

    Its first field is `storage_options: Mapping[str, Any]`, options for fsspec, left out of comparisons; all
    others are options of the format and have defaults.
    """

    suffixes: ClassVar[tuple[str, ...]]
    """File endings that pick this reader, in lower case, such as `.jsonl`, `.jsonl.zst`; the longest that fits wins."""

    @property
    def storage_options(self) -> Mapping[str, Any]:
        """Options for fsspec, such as credentials."""

    def split(self, file: InputFile, target_bytes: int) -> list[Slice]:
        """Cut a file into slices of about `target_bytes` of content, in order; one where it cannot be cut.

        A file without a row may give no slice.

        Raises:
            InputError: The file cannot be opened as this format at all.
        """

    def schema(self, file: InputFile) -> pa.Schema:
        """Columns of the file, with types; read from its footer or its first megabyte.

        Raises:
            InputError: The file cannot be opened as this format at all.
        """

    def read(self, piece: Slice, schema: pa.Schema, batch_bytes: int) -> Iterator[Rows]:
        """Rows of the slice in order, at most about `batch_bytes` of content each.

        The batches have exactly the columns of `schema` (unified over all input files by the caller), cast to its
        types; a column that the file lacks is null, and a row that does not fit is a reject. Memory stays bounded
        by `batch_bytes` and the largest row. A file that ends early gives all whole rows before the damage, then
        one reject `truncated_file`.

        Raises:
            InputError: The file is no longer there, or no longer readable.
        """
