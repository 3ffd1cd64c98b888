"""Text of unknown documents, made safe to look at: nothing in it can steer a terminal or turn a page around."""

from __future__ import annotations

import re

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,16}[@-~]"  # control sequences: colours, cursor, modes
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)"  # strings: title, clipboard
    r"|\x1b[ -/]{0,16}[0-~]"  # other escapes
)
_ESCAPE = "\u241b"
_REPLACED: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)},
    0x7F: "\u2421",
    **{code: f"<{code:02X}>" for code in range(0x80, 0xA0)},
    **{code: f"<{code:04X}>" for code in (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))},
    **{code: f"<{code:04X}>" for code in (0xFEFF, 0xFFFE, 0xFFFF)},
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}


def visible(text: str) -> str:
    """`text` with every escape sequence as one `␛`, and other invisible controls as pictures or code points.

    Newlines and tabs stay; right-to-left letters stay, but not the marks that reorder what stands around them.
    """
    return _SEQUENCE.sub(_ESCAPE, text).translate(_REPLACED)


def one_line(text: str, limit: int) -> str:
    """`text`, visible, on one line of at most `limit` characters, its end cut with an ellipsis."""
    line = " ".join(visible(text[: 4 * limit + 4096]).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def excerpt(text: str, limit: int) -> str:
    """The beginning of `text`, visible, lines kept, at most `limit` characters, its end cut with an ellipsis."""
    shown = visible(text[: limit + 4096]).strip("\n")
    return shown if len(shown) <= limit else shown[: limit - 1].rstrip() + "…"
