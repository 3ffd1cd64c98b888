"""Numbers as people read them, with their unit."""

from __future__ import annotations

import math

_MINUS = "\N{MINUS SIGN}"


def count(number: float) -> str:
    """A whole number: `12,345`; from ten million on `12.3 M`, `4.56 B`."""
    for scale, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if number >= scale * (10 if unit == "M" else 0.9995):
            return f"{number / scale:.{_places(number / scale)}f} {unit}"
    return f"{number:,.0f}"


def size(num_bytes: float) -> str:
    """Bytes in decimal units: `12.3 MB`."""
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= scale * 0.9995:
            return f"{num_bytes / scale:.{_places(num_bytes / scale)}f} {unit}"
    return f"{num_bytes:.0f} B"


def share(part: float, whole: float) -> str:
    """A share in percent: `12.3 %`; a trace is `<0.1 %`, nothing is `0 %`, and of nothing it is a dash."""
    if whole <= 0:
        return "–"
    percent = 100 * part / whole
    if percent == 0:
        return "0 %"
    if percent < 0.05:
        return "<0.1 %"
    if 99.95 <= percent < 100:
        return ">99.9 %"
    return f"{percent:.1f} %" if percent < 100 else f"{percent:.0f} %"


def duration(seconds: float) -> str:
    """A time: `12 s`, `3 min 20 s`, `2 h 05 min`."""
    if 0 < seconds < 0.05:
        return "<0.1 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"


def short(number: float) -> str:
    """A whole number in few characters: `12,345`; from a million on `1.23 M`."""
    return f"{number / 1e6:.2f} M" if 1e6 <= number < 1e7 else count(number)


def cpu_hours(seconds: float) -> str:
    """CPU time in hours, without unit, so that a column of them can be compared: `1.2345`, `0.0012`, `<0.0001`."""
    return f"{seconds / 3600:,.4f}" if seconds >= 0.18 or seconds == 0 else "<0.0001"


def hours(seconds: float) -> str:
    """CPU time in hours, three significant digits: `0.0123 CPU-hours`."""
    return f"{seconds / 3600:.3g} CPU-hours"


def value(number: float) -> str:
    """A signal's value, four significant digits: `0.1235`, `50`, `100,000`."""
    if math.isnan(number):
        return "not judged"
    if math.isinf(number):
        return "∞" if number > 0 else f"{_MINUS}∞"
    if number == int(number) and abs(number) < 1e15:
        text = f"{int(number):,}"
    elif abs(number) >= 1000:
        text = f"{number:,.0f}"
    else:
        text = f"{number:.4g}"
    return text.replace("-", _MINUS) if text.startswith("-") else text


def passes(low: float, high: float) -> str:
    """What passes a rule: `50 to 100,000`, `at least 3`, `at most 0.3`."""
    if math.isinf(low) and math.isinf(high):
        return "anything"
    if math.isinf(high):
        return f"at least {value(low)}"
    if math.isinf(low):
        return f"at most {value(high)}"
    return f"exactly {value(low)}" if low == high else f"{value(low)} to {value(high)}"


def _places(scaled: float) -> int:
    return 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2
