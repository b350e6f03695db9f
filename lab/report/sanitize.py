r"""Make text of scripts safe to show: escape what would act on a terminal or page. Only this module decides.

Newlines and tabs pass. On a terminal, SGR sequences for colours and for bold, dim, italic, underlined, inverse, and
crossed-out text pass too, but none that blinks or conceals; and in output of ranks, carriage returns.
Other control characters (C0, C1), line and paragraph separators, characters that change the writing direction, and
invisible characters become text such as `\x1b` or `\u202e`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_RGB = r"[34]8(?:[;:]5[;:]\d{1,3}|;2(?:;\d{1,3}){3}|:2(?::\d{0,3}){3,4})"  # ISO 8613-6
_STYLE = rf"0{{0,2}}(?:[0-479]|2[1-9]|4:[0-5]|[349][0-7]|10[0-7]|[34]9|{_RGB})?"  # ECMA-48, bright colours of aixterm
_COLOUR = rf"\x1b\[{_STYLE}(?:;{_STYLE}){{0,15}}m"
_ACTING = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction: UAX #9
    r"\u2028\u2029"  # line and paragraph separator
    r"\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    r"\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # Default_Ignorable_Code_Point, and annotations
    r"\ud800-\udfff\ufffe\uffff"  # noncharacters
)
_JOINED = r"\u0600-\u06ff\u0900-\u0dff\u2600-\u27bf\ufe0f\U0001f000-\U0001faff"
_JOINER = rf"(?<=[{_JOINED}])[\u200c\u200d](?=[{_JOINED}])"
"""Scripts and emoji that are written with joiners keep them."""
_INVISIBLE = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0"
"""Invisible characters that Python considers printable."""
_OFF = "\x1b[0m"
_EDITS = r"(\r|\x08|\x1b\[\d{0,3}[CDKP@])"
_MODES = r"\x07|\x1b[=>]|\x1b\[\?\d{1,4}[hl]"
_SHORT_FORMS = {"b": "\\\\x08", "f": "\\\\x0c", "r": "\\\\x0d"}


def sanitize_text(text: str, *, output: bool = False, colours: bool = True) -> str:
    """Return text that is safe to show.

    Args:
        text: any text.
        output: it is what a rank printed, whose carriage returns stay.
        colours: it is for a terminal, where colours pass; pages and files have none.
    """
    if text.replace("\n", "").isprintable() and not _has_blank_letters(text):  # the common case
        return text
    shown = _harmful(output, colours).sub(_shown, text)
    return "\n".join(map(_closed, shown.split("\n"))) if colours and "\x1b" in shown else shown


def sanitize_plain(text: str) -> str:
    """Return text that is safe in a page or a file: without colours, and with acting characters escaped."""
    return sanitize_text(re.sub(_COLOUR, "", text) if "\x1b" in text else text, colours=False)


def sanitize_json(data: Any) -> str:
    """Return data as JSON whose texts are safe for a page."""
    import json

    return _harmful_in_json().sub(_shown_in_json, json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def sanitize_line_editing(text: str) -> str:
    """Sanitize the output of a line editor: it can move and erase in its row; sequences that set modes are removed."""
    parts = re.split(_EDITS, re.sub(_MODES, "", text))
    return "".join(part if at % 2 else sanitize_text(part) for at, part in enumerate(parts))


def _has_blank_letters(text: str) -> bool:
    return not text.isascii() and any(letter in text for letter in _INVISIBLE)


@lru_cache(maxsize=4)
def _harmful(output: bool, colours: bool) -> re.Pattern[str]:
    """Return the pattern of what passes (first group) and of what does not; compiling it takes half a millisecond."""
    passes = [_JOINER, *([_COLOUR] if colours else []), *([r"\r"] if output else [])]
    return re.compile(f"({'|'.join(passes)})|[{_ACTING}]")


@lru_cache(maxsize=1)
def _harmful_in_json() -> re.Pattern[str]:
    """Return a pattern with a group each: escaped code, other escape, what passes, raw character."""
    return re.compile(rf"\\(?:u([0-9a-f]{{4}})|(.))|({_JOINER})|([{_ACTING}])")


def _shown(match: re.Match[str]) -> str:
    return match[1] or _written(match[0])


def _written(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _shown_in_json(match: re.Match[str]) -> str:
    """Escape one harmful character of JSON, raw or escaped; keep other escapes."""
    code, short, joiner, raw = match.groups()
    if code:
        return "\\" + _written(chr(int(code, 16)))
    if short:
        return _SHORT_FORMS.get(short, match[0])
    return joiner or "\\" + _written(raw)


def _closed(line: str) -> str:
    """Reset the colours at the end of a line."""
    last = line.rfind("\x1b[")
    return line if last < 0 or line.startswith((_OFF, "\x1b[m"), last) else line + _OFF
