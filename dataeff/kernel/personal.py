"""E-mail addresses and public IPv4 addresses in texts: where they stand, found in linear time."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dataeff.arrow import I64, U8
from dataeff.kernel.compiled import compiled, inlined
from dataeff.kernel.memory import trailing_zeros
from dataeff.kernel.segment import first_bytes, load

U32: TypeAlias = npt.NDArray[np.uint32]
EMAIL, IPV4 = 0, 1
_MOST_LOCAL_BYTES = 64
"""RFC 5321, 4.5.3.1.1."""
_MOST_DOMAIN_BYTES = 255
"""RFC 5321, 4.5.3.1.2."""
_FEWEST_TOP_LETTERS, _MOST_TOP_LETTERS = 2, 63

SPECIAL = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
)  # fmt: skip
"""Networks that belong to nobody's machine: IANA's IPv4 Special-Purpose Address Registry, multicast, reserved."""
VERSION_WORDS = (
    "v", "ver", "vers", "version", "versions", "release", "releases", "rev", "revision", "build", "oid", "oids",
    "section", "sections", "sec", "chapter", "clause", "firmware", "driver",
)  # fmt: skip
"""Words before which four numbers are no address."""

_ONES = np.uint64(0x0101010101010101)
_LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH = np.uint64(0x8080808080808080)
_LETTER, _DIGIT, _LOCAL = 1, 2, 4


class Spans(NamedTuple):
    """Addresses in the order of the text."""

    rows: I64
    """Row of each, shape (spans,)."""
    starts: I64
    stops: I64
    kinds: U8
    """`EMAIL` or `IPV4`."""


def _kinds() -> U8:
    kinds = np.zeros(256, np.uint8)
    for code in range(128):
        character = chr(code)
        if character.isalpha():
            kinds[code] = _LETTER | _LOCAL
        elif character.isdigit():
            kinds[code] = _DIGIT | _LOCAL
        elif character in "._%+-":
            kinds[code] = _LOCAL
    kinds.flags.writeable = False
    return kinds


def _networks() -> U32:
    """First and last address of each of `SPECIAL`, shape (networks, 2)."""
    spans = []
    for network in SPECIAL:
        address, _, bits = network.partition("/")
        first = int.from_bytes(bytes(map(int, address.split("."))), "big")
        spans.append((first, first + 2 ** (32 - int(bits)) - 1))
    made = np.array(spans, np.uint32)
    made.flags.writeable = False
    return made


def _words() -> U8:
    """`VERSION_WORDS`, a row each, zeros behind."""
    made = np.zeros((len(VERSION_WORDS), 16), np.uint8)
    for row, word in enumerate(VERSION_WORDS):
        made[row, : len(word)] = np.frombuffer(word.encode(), np.uint8)
    made.flags.writeable = False
    return made


_KINDS, _SPECIAL_SPANS, _VERSION_WORDS = _kinds(), _networks(), _words()


def find_addresses(data: U8, offsets: I64) -> Spans:
    """Addresses in each row.

    Args:
        data: UTF-8 bytes of all rows.
        offsets: Row boundaries into `data`, shape (rows + 1,).
    """
    room = 1024
    while True:
        rows, starts, stops = (np.empty(room, np.int64) for _ in range(3))
        kinds = np.empty(room, np.uint8)
        num = _find(data, offsets, _KINDS, _SPECIAL_SPANS, _VERSION_WORDS, rows, starts, stops, kinds)
        if num <= room:
            return Spans(rows[:num], starts[:num], stops[:num], kinds[:num])
        room = num


def replace(data: U8, offsets: I64, spans: Spans, email: U8, ipv4: U8) -> tuple[U8, I64]:
    """Rows with placeholders in place of addresses.

    Args:
        data, offsets: Rows in which `spans` were found.
        spans: What to replace.
        email, ipv4: Read-only UTF-8 bytes of the placeholders.
    """
    cut = int((spans.stops - spans.starts).sum())
    put = int(np.where(spans.kinds == EMAIL, len(email), len(ipv4)).sum())
    out = np.empty(int(offsets[-1] - offsets[0]) - cut + put, np.uint8)
    bounds = np.zeros(len(offsets), np.int64)
    _replace(data, offsets, spans.rows, spans.starts, spans.stops, spans.kinds, email, ipv4, out, bounds)
    return out, bounds


@inlined
def _equal(value, byte):
    other = value ^ _ONES * np.uint64(byte)
    return ~((other & _LOW7) + _LOW7 | other) & _HIGH


@compiled
def _find(data, offsets, classes, special, words, rows, starts, stops, kinds):
    """Find addresses; returns how many there are, whether or not there was room for all."""
    num = 0
    for row in range(len(offsets) - 1):
        first, end = offsets[row], offsets[row + 1]
        free = first
        address_end = -1
        place = first
        while place < end:
            value = first_bytes(load(data, place), min(end - place, 8))
            signs = _equal(value, 64) | _equal(value, 46)
            while signs:
                sign = place + np.int64(trailing_zeros(signs) >> np.uint64(3))
                signs &= signs - np.uint64(1)
                if sign < free:
                    continue
                kind = EMAIL if data[sign] == 64 else IPV4
                if kind == EMAIL:
                    start, stop = _email(data, sign, free, end, classes)
                else:
                    start, stop = _ipv4(data, sign, free, first, end, address_end, classes, special, words)
                    if stop > 0:
                        address_end = stop
                if stop > 0 and start >= 0:
                    if num < len(rows):
                        rows[num], starts[num], stops[num], kinds[num] = row, start, stop, kind
                    num += 1
                    free = stop
            place += 8
    return num


@compiled
def _email(data, sign, low, end, classes):
    """Where the e-mail address around an @ begins and ends, or -1 twice."""
    start = sign
    while start > low and classes[data[start - 1]] & _LOCAL:
        start -= 1
        if sign - start > _MOST_LOCAL_BYTES:
            return -1, -1
    while start < sign and classes[data[start]] & (_LETTER | _DIGIT) == 0:
        start += 1
    stop = _domain_end(data, sign + 1, min(end, sign + 1 + _MOST_DOMAIN_BYTES), classes)
    return (start, stop) if start < sign and stop > 0 else (-1, -1)


@compiled
def _domain_end(data, begun, end, classes):
    """Where the longest domain of two labels or more, the last of letters only, ends; or -1.

    The first labels may have letters beyond ASCII; a later one ends where such letters begin, since Chinese or Thai
    text may follow an address without a space.
    """
    found = -1
    place = begun
    labels = 0
    while True:
        first = place
        while place < end and (classes[data[place]] & (_LETTER | _DIGIT) or data[place] == 45 or data[place] >= 0x80):
            if data[place] >= 0x80 and labels > 0:
                break
            place += 1
        last = place
        while last > first and data[last - 1] == 45:
            last -= 1
        if last == first or data[first] == 45:
            return found
        letters = True
        for inner in range(first, last):
            letters &= classes[data[inner]] & _LETTER != 0
        labels += 1
        top = _FEWEST_TOP_LETTERS <= last - first <= _MOST_TOP_LETTERS
        if labels > 1 and top and letters:
            found = last
        if labels > 1 and top and _is_punycode(data, first, last):
            found = last
        if labels == 2 and found > 0 and _is_picture(data, begun, first, last):
            found = -1
        if last < place or place >= end or data[place] != 46:
            return found
        place += 1


@compiled
def _is_punycode(data, first, last):
    """Whether a label is an internationalised one: `xn--` and more."""
    if last - first < 5:
        return False
    return data[first] | 32 == 120 and data[first + 1] | 32 == 110 and data[first + 2] == 45 and data[first + 3] == 45


@compiled
def _is_picture(data, begun, first, last):
    """Whether a domain is the end of a picture's name for dense screens: `icon@2x.png`."""
    return first - begun == 3 and 49 <= data[begun] <= 57 and data[begun + 1] | 32 == 120 and last - first <= 4


@compiled
def _ipv4(data, dot, low, begin, end, address_end, classes, special, words):
    """Where the IPv4 address around its first dot begins and ends; the start is -1 where it is not a public one."""
    start = dot
    while start > low and classes[data[start - 1]] & _DIGIT and dot - start < 4:
        start -= 1
    if not 1 <= dot - start <= 3 or not _may_begin(data, start, begin, address_end, classes, words):
        return -1, -1
    stop, address = _parse(data, start, end, classes)
    if stop < 0 or not _may_end(data, stop, end, classes):
        return -1, -1
    for network in range(len(special)):
        if special[network, 0] <= address <= special[network, 1]:
            return -1, stop
    return start, stop


@compiled
def _parse(data, start, end, classes):
    """Where four numbers up to 255, joined by dots and without leading zeros, end, and their value; or -1."""
    address = np.int64(0)
    place = start
    for part in range(4):
        if part:
            if place >= end or data[place] != 46:
                return -1, address
            place += 1
        number, first = 0, place
        while place < end and place - first < 4 and classes[data[place]] & _DIGIT:
            number = number * 10 + np.int64(data[place]) - 48
            place += 1
        length = place - first
        if not 1 <= length <= 3 or number > 255 or (length > 1 and data[first] == 48):
            return -1, address
        address = address << 8 | number
    return place, address


@compiled
def _may_begin(data, start, begin, address_end, classes, words):
    """Whether what stands before four numbers leaves them an address: no name, longer number or version goes on."""
    if start == begin:
        return True
    before = data[start - 1]
    inner = start - 2 >= begin and classes[data[start - 2]] & (_LETTER | _DIGIT) != 0
    if classes[before] & (_LETTER | _DIGIT) or before == 95:
        return False
    if before == 46 or before == 43 or before == 126:
        return not inner and before == 46
    if before == 45:
        return not inner or address_end == start - 1
    place = start
    while place > begin and data[place - 1] == 32 and start - place < 2:
        place -= 1
    if place > begin and data[place - 1] == 61 and place - 2 >= begin:
        sign = data[place - 2]
        if sign == 60 or sign == 61 or sign == 62 or sign == 126 or sign == 33:
            return False
    return not _follows_word(data, start, begin, classes, words)


@compiled
def _follows_word(data, start, begin, classes, words):
    """Whether one of some words stands before `start`, with at most three of ` :.(#=` between."""
    stop = start
    while stop > begin and start - stop < 3:
        byte = data[stop - 1]
        if byte == 32 or byte == 58 or byte == 46 or byte == 40 or byte == 35 or byte == 61:
            stop -= 1
        else:
            break
    first = stop
    while first > begin and stop - first < 12 and classes[data[first - 1]] & _LETTER:
        first -= 1
    for number in range(len(words)):
        length = 0
        while words[number, length]:
            length += 1
        if length == stop - first:
            same = True
            for at in range(length):
                same &= data[first + at] | 32 == words[number, at]
            if same:
                return True
    return False


@compiled
def _may_end(data, stop, end, classes):
    """Whether what stands behind four numbers leaves them an address."""
    if stop >= end:
        return True
    after = data[stop]
    inner = stop + 1 < end and classes[data[stop + 1]] & (_LETTER | _DIGIT) != 0
    if classes[after] & (_LETTER | _DIGIT) or after == 95:
        return False
    if after == 45 and inner:
        following, _ = _parse(data, stop + 1, end, classes)
        return following > 0 and (following >= end or classes[data[following]] & (_LETTER | _DIGIT) == 0)
    return not (inner and (after == 46 or after == 43 or after == 126))


@compiled
def _replace(data, offsets, rows, starts, stops, kinds, email, ipv4, out, bounds):
    at = 0
    span = 0
    for row in range(len(offsets) - 1):
        place = offsets[row]
        while span < len(rows) and rows[span] == row:
            at = _put(data, place, starts[span], out, at)
            placeholder = email if kinds[span] == EMAIL else ipv4
            at = _put(placeholder, 0, len(placeholder), out, at)
            place = stops[span]
            span += 1
        at = _put(data, place, offsets[row + 1], out, at)
        bounds[row + 1] = at


@compiled
def _put(data, place, stop, out, at):
    for ahead in range(stop - place):
        out[at + ahead] = data[place + ahead]
    return at + stop - place
