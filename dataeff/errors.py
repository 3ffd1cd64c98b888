"""Everything dataeff raises on purpose.

    DataeffError
    ├── PlanError         a recipe, option or argument that cannot work; raised before any work starts
    ├── InputError        an input file, row or column that cannot be read as asked
    │   └── EmptyError    the input holds nothing at all
    ├── FormatError       a file of ours that is damaged, of another version, or of another run
    ├── StorageError      the output cannot be written: disk full, no permission, a directory that is not ours
    └── MeasurementError  too little was measured to state a figure

A message says what was found, where, what it must be, and the next step.
"""

from __future__ import annotations


class DataeffError(Exception):
    """The root: catch this to catch all that dataeff raises on purpose."""


class PlanError(DataeffError):
    """A recipe, option or argument that cannot work."""

    @classmethod
    def out_of_range(cls, owner: object, field: str, must_be: str) -> PlanError:
        """Say that `owner.field` is outside what `must_be` allows."""
        return cls(f"{type(owner).__name__}.{field} is {getattr(owner, field)!r}; it must be {must_be}")


class InputError(DataeffError):
    """An input file, row or column that cannot be read as asked."""


class EmptyError(InputError):
    """The input holds nothing at all."""


class FormatError(DataeffError):
    """A file of ours that is damaged, of another version, or of another run."""


class StorageError(DataeffError):
    """The output cannot be written."""


class MeasurementError(DataeffError):
    """Too little was measured to state a figure."""
