r"""Text of scripts on a terminal: what would act on it is shown instead. The only place that decides what may pass.

Colours (SGR sequences) pass, and in output of ranks a carriage return; so do newlines and tabs. Every other control
character, of C0 and of C1, and those that turn the direction of writing around, are written as `\x1b`.
"""

from __future__ import annotations

import re
from functools import lru_cache

_COLOUR = r"\x1b\[[0-9;:]{0,40}m"
_ACTING = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_OFF = "\x1b[0m"
_EDITS = r"(\r|\x08|\x1b\[\d{0,3}[CDKP@])"
_MODES = r"\x07|\x1b[=>]|\x1b\[\?\d{1,4}[hl]"


def harmless(text: str, *, output: bool = False) -> str:
    """The text as a terminal may have it; `output`: it is what a rank printed, whose carriage returns stay."""
    if text.replace("\n", "").isprintable():  # as most text is
        return text
    found = _harmful(output).sub(_shown, text)
    return "\n".join(map(_closed, found.split("\n"))) if "\x1b" in found else found


def of_an_editor(text: str) -> str:
    """The text that a line editor writes: it may move and erase in its own row, and what would only set modes goes."""
    parts = re.split(_EDITS, re.sub(_MODES, "", text))
    return "".join(part if at % 2 else harmless(part) for at, part in enumerate(parts))


@lru_cache(maxsize=2)
def _harmful(output: bool) -> re.Pattern[str]:
    """What passes, as the first group, and what does not; compiling it takes half a millisecond."""
    passes = rf"{_COLOUR}|\r" if output else _COLOUR
    return re.compile(f"({passes})|[{_ACTING}]")


def _shown(match: re.Match[str]) -> str:
    if match[1]:
        return match[1]
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _closed(line: str) -> str:
    """A line whose colours end with it."""
    last = line.rfind("\x1b[")
    return line if last < 0 or line.startswith((_OFF, "\x1b[m"), last) else line + _OFF
