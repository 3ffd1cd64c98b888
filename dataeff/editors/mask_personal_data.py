"""Personal data that is easy to tell: e-mail addresses and public IPv4 addresses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataeff.arrow import U8, text_array, text_views
from dataeff.editors import Edited
from dataeff.errors import PlanError
from dataeff.kernel.personal import EMAIL, IPV4, find_addresses, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskPersonalData:
    """Replace e-mail addresses, and IPv4 addresses that are public, by placeholders.

    An e-mail address is letters, digits and . _ % + - around an @ and a domain that ends in letters. An IPv4 address
    is four numbers up to 255 that are not part of a longer number, name or version: `v1.2.3.4`, `version 1.2.3.4`,
    `lib-1.2.3.4.tar`, `>=1.2.3.4`, `1.3.6.1.4.1` and `999.1.1.1` stay. So do addresses that belong to nobody's
    machine (private, loopback, documentation, multicast, reserved). The time is linear in the text.
    """

    email: str = "<email>"
    ipv4: str = "<ip>"

    def __post_init__(self) -> None:
        for name in ("email", "ipv4"):
            try:
                getattr(self, name).encode()
            except (AttributeError, UnicodeEncodeError) as error:
                raise PlanError.out_of_range(self, name, "text that can be written as UTF-8") from error

    def edit(self, text: pa.Array) -> Edited:
        """Mask every row."""
        data, offsets = text_views(text)
        spans = find_addresses(data, offsets)
        removed = {
            name: np.bincount(spans.rows[spans.kinds == kind], minlength=len(text)).astype(np.float64)
            for name, kind in (("emails", EMAIL), ("ipv4_addresses", IPV4))
        }
        if len(spans.rows):
            text = text_array(*replace(data, offsets, spans, _bytes(self.email), _bytes(self.ipv4)))
        return Edited(text=text, removed=removed)


def _bytes(placeholder: str) -> U8:
    return np.frombuffer(placeholder.encode(), np.uint8)
