"""E-mail and public IPv4 addresses in plain Python, one position at a time."""

from __future__ import annotations

import ipaddress
import re

from dataeff.kernel.personal import VERSION_WORDS

_LOCAL = re.compile(r"[A-Za-z0-9._%+-]*\Z")
_FIRST_LABEL = re.compile(r"(?:[A-Za-z0-9-]|[^\0-\x7f])+")
_LATER_LABEL = re.compile(r"[A-Za-z0-9-]+")
_TOP = re.compile(r"[A-Za-z]{2,63}|[Xx][Nn]--[A-Za-z0-9-]{1,59}")
_NUMBERS = re.compile(r"((?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3})(?![0-9])")
_NO_START = re.compile(r"(?:[A-Za-z0-9_]|[A-Za-z0-9]\.|[+~])\Z")
_CONSTRAINT = re.compile(r"[<=>~!]= {0,2}\Z")
_VERSION = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(VERSION_WORDS)})[ :.(#=]{{0,3}}\Z", re.IGNORECASE | re.ASCII)


def mask(text: str, email: str, ipv4: str) -> tuple[str, int, int]:
    """The masked text, and how many addresses of each kind it had."""
    out: list[str] = []
    emails = addresses = free = 0
    address_end = -1
    for place, character in enumerate(text):
        if place < free:
            continue
        span = None
        if character == "@":
            span = _email(text, place, free)
            word = email
            emails += span is not None
        elif character == "." and place > free and text[place - 1] in "0123456789":
            start = place - len(re.search(r"[0-9]*\Z", text[free:place])[0])  # type: ignore[index]
            found = _NUMBERS.match(text, start)
            if (
                found
                and found.start() + len(found[0].split(".")[0]) == place
                and _stands_alone(text, found, address_end)
            ):
                address_end = found.end()
                if _is_public(found[0]):
                    span = found.span()
                    word = ipv4
                    addresses += 1
        if span:
            out += [text[free : span[0]], word]
            free = span[1]
    return "".join([*out, text[free:]]), emails, addresses


def _email(text: str, at: int, free: int) -> tuple[int, int] | None:
    run = _LOCAL.search(text[free:at])[0]  # type: ignore[index]
    local = run.lstrip("._%+-")
    stop = _domain_end(text, at + 1)
    return (at - len(local), stop) if local and len(run) <= 64 and stop > 0 else None


def _domain_end(text: str, begun: int) -> int:
    end, place = -1, begun
    labels: list[str] = []
    while found := (_LATER_LABEL if labels else _FIRST_LABEL).match(text, place):
        label = found[0].rstrip("-")
        if not label or label.startswith("-"):
            break
        labels.append(label)
        if len(labels) > 1 and len(label) <= 63 and _TOP.fullmatch(label):
            end = place + len(label)
        if len(labels) == 2 and re.fullmatch("[1-9][xX]", labels[0]) and len(label) <= 4:
            end = -1
        if label != found[0] or text[found.end() : found.end() + 1] != ".":
            break
        place = found.end() + 1
    return end


def _stands_alone(text: str, found: re.Match[str], address_end: int) -> bool:
    before, behind = text[: found.start()], text[found.end() :]
    if any(int(number) > 255 for number in found[0].split(".")) or _NO_START.search(before):
        return False
    if before.endswith("-"):
        if re.search(r"[A-Za-z0-9]-\Z", before) and address_end != found.start() - 1:
            return False
    elif not before.endswith(".") and (_CONSTRAINT.search(before) or _VERSION.search(before)):
        return False
    if re.match(r"[A-Za-z0-9_]|[.+~][A-Za-z0-9]", behind):
        return False
    if re.match(r"-[A-Za-z0-9]", behind):
        other = _NUMBERS.match(behind, 1)
        return bool(other and _fits(other[0]) and not re.match("[A-Za-z]", behind[other.end() :]))
    return True


def _fits(numbers: str) -> bool:
    return all(int(number) <= 255 for number in numbers.split("."))


def _is_public(numbers: str) -> bool:
    address = ipaddress.IPv4Address(numbers)
    return address.is_global and not address.is_multicast and address not in ipaddress.IPv4Network("192.0.0.0/24")
