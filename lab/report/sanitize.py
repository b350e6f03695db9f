r"""Text of scripts, wherever it is shown: what would act there is written out. Only this module decides what passes.

Newlines and tabs pass. On a terminal, colours (SGR sequences) pass too, and in output of ranks a carriage return. Other
control characters (C0, C1), line and paragraph separators, characters that turn the direction of writing around, and
characters that nobody sees are written as `\x1b` or `\u202e`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_COLOUR = r"\x1b\[[0-9;:]{0,40}m"
_ACTING = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction: UAX #9
    r"\u2028\u2029"  # line and paragraph separator
    r"\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    r"\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # Default_Ignorable_Code_Point, and annotations
    r"\ud800-\udfff\ufffe\uffff"  # no characters
)
_JOINED = r"\u0600-\u06ff\u0900-\u0dff\u2600-\u27bf\ufe0f\U0001f000-\U0001faff"
_JOINER = rf"(?<=[{_JOINED}])[\u200c\u200d](?=[{_JOINED}])"
"""Scripts and emoji that are written with joiners keep them."""
_SEEN_AS_NOTHING = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0"
"""Those of them that Python calls printable."""
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&!$])")
_ADDRESS = re.compile(r"(?i)\b(?:https?|ftp|mailto|xmpp):|\bwww\.")
_FIRST = re.compile(r"\A([-+=](?=[-+=\s]|\Z)|\d+[.)](?=\s|\Z))")
"""What makes a list or a heading of a line that begins with it."""
_MENTION = re.compile(r"(@|\\#(?=\d))")
_OFF = "\x1b[0m"
_EDITS = r"(\r|\x08|\x1b\[\d{0,3}[CDKP@])"
_MODES = r"\x07|\x1b[=>]|\x1b\[\?\d{1,4}[hl]"
_SHORT_FORMS = {"b": "\\\\x08", "f": "\\\\x0c", "r": "\\\\x0d"}


def sanitize_text(text: str, *, output: bool = False, colours: bool = True) -> str:
    """Return the text as it may be shown.

    Args:
        text: any text.
        output: it is what a rank printed, whose carriage returns stay.
        colours: it is for a terminal, where colours pass; pages and files have none.
    """
    if text.replace("\n", "").isprintable() and not _has_blank_letters(text):  # as most text is
        return text
    shown = _harmful(output, colours).sub(_shown, text)
    return "\n".join(map(_closed, shown.split("\n"))) if colours and "\x1b" in shown else shown


def sanitize_plain(text: str) -> str:
    """Return the text as a page or a file may have it: colours are removed, and what acts is written out."""
    return sanitize_text(re.sub(_COLOUR, "", text) if "\x1b" in text else text, colours=False)


def sanitize_json(data: Any) -> str:
    """Return data as JSON whose texts are harmless for a page that shows them."""
    import json

    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return _harmful_in_json().sub(_shown_in_json, text)


def escape_markdown(text: str, *, code: bool = False) -> str:
    """Return the text as one line of Markdown that reads as it is: no markup, link, mention, or formula.

    With `code`, what stands between two backticks stays code, where nothing acts.
    """
    line = " ".join(text.split())
    parts = re.split(r"(?<!`)(`[^`\\]+`)(?!`)", line) if code else [line]
    shown = "".join(sanitize_text(part, colours=False) if at % 2 else _escaped(part) for at, part in enumerate(parts))
    return _FIRST.sub(lambda found: f"{found[1][:-1]}\\{found[1][-1]}", shown)


def _escaped(line: str) -> str:
    line = _MARKUP.sub(r"\\\1", sanitize_text(line, colours=False))
    line = _ADDRESS.sub(lambda found: f"{found[0][:-1]}\\{found[0][-1]}", line)
    return _MENTION.sub(lambda found: f"`{found[1][-1]}`", line)  # a page looks for mentions after escapes, not in code


def sanitize_line_editing(text: str) -> str:
    """The text that a line editor writes: it may move and erase in its own row, and what would only set modes goes."""
    parts = re.split(_EDITS, re.sub(_MODES, "", text))
    return "".join(part if at % 2 else sanitize_text(part) for at, part in enumerate(parts))


def _has_blank_letters(text: str) -> bool:
    return not text.isascii() and any(letter in text for letter in _SEEN_AS_NOTHING)


@lru_cache(maxsize=4)
def _harmful(output: bool, colours: bool) -> re.Pattern[str]:
    """What passes, as the first group, and what does not; compiling it takes half a millisecond."""
    passes = [_JOINER, *([_COLOUR] if colours else []), *([r"\r"] if output else [])]
    return re.compile(f"({'|'.join(passes)})|[{_ACTING}]")


@lru_cache(maxsize=1)
def _harmful_in_json() -> re.Pattern[str]:
    """A character by its number, another escape, what passes, a character as it is: a group each."""
    return re.compile(rf"\\(?:u([0-9a-f]{{4}})|(.))|({_JOINER})|([{_ACTING}])")


def _shown(match: re.Match[str]) -> str:
    return match[1] or _written(match[0])


def _written(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _shown_in_json(match: re.Match[str]) -> str:
    """Write out one harmful character of JSON, raw or escaped; other escapes stay."""
    code, short, joiner, raw = match.groups()
    if code:
        return "\\" + _written(chr(int(code, 16)))
    if short:
        return _SHORT_FORMS.get(short, match[0])
    return joiner or "\\" + _written(raw)


def _closed(line: str) -> str:
    """A line whose colours end with it."""
    last = line.rfind("\x1b[")
    return line if last < 0 or line.startswith((_OFF, "\x1b[m"), last) else line + _OFF
