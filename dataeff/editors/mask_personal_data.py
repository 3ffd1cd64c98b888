"""Personal data that is easy to tell: e-mail addresses and public IPv4 addresses."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataeff.editors import Edited

_EMAIL = re.compile(
    r"(?<![\w.+-])[A-Za-z0-9](?:[\w.+-]{0,63})@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-])", re.ASCII
)
_IPV4 = re.compile(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskPersonalData:
    """Replace e-mail addresses, and IPv4 addresses that are public, by placeholders.

    An address stands alone: `v1.2.3.4`, `1.3.6.1.4.1` and `999.1.1.1` are not IPv4 addresses. Private, loopback and
    reserved addresses stay. The work is linear in the text.
    """

    email: str = "<email>"
    ipv4: str = "<ip>"

    def edit(self, text: pa.Array) -> Edited:
        """Mask every row."""
        emails, addresses = np.zeros(len(text)), np.zeros(len(text))
        masked = []
        for row, document in enumerate(text.to_pylist()):
            if "@" in document:
                document, emails[row] = _EMAIL.subn(lambda _: self.email, document)
            document, addresses[row] = self._without_addresses(document)
            masked.append(document)
        return Edited(text=pa.array(masked, pa.large_string()), removed={"emails": emails, "ipv4_addresses": addresses})

    def _without_addresses(self, document: str) -> tuple[str, int]:
        count = 0

        def mask(found: re.Match[str]) -> str:
            nonlocal count
            if not _is_public(found[0]):
                return found[0]
            count += 1
            return self.ipv4

        return _IPV4.sub(mask, document), count


def _is_public(address: str) -> bool:
    try:
        return ipaddress.IPv4Address(address).is_global
    except ValueError:
        return False
