"""What of an exception's text tells most: its first line, the line that names parameters, or else its last."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from lab.words import clip, clip_middle, listing

_LONGEST = 160
_FRAMES = re.compile(r"^(?:Exception raised from |C\+\+ CapturedTraceback|frame #\d+|#\d+ )", re.MULTILINE)
"""What PyTorch appends for its own developers."""
_ADVICE = re.compile(
    r"(?:In addition, )?you can set the environment variable|^For debugging consider|^Compile with |^Device-side assert"
    r"|^To suppress|^If you already have done|^Original Traceback|^CUDA kernel errors might",
    re.IGNORECASE,
)
"""How lines begin that say what to try, not what was wrong."""
_ALWAYS_SAID = re.compile(r"\. This is typically caused by a remote worker .*? GLHF! \S*")
_PARAMETERS = re.compile(r"^(?:Parameters? |Parameter indices )", re.MULTILINE)
_SOURCE_OF_TORCH = re.compile(r"\[/[^\]\s]*\.(?:cc|cpp|h|hpp):\d+\] ?")
_UNNAMED = re.compile(
    r"Parameter indices which did not receive grad for rank \d+: (?P<several>\d+(?:[ ,]+\d+)*)"
    r"|Parameter at index (?P<one>\d+)(?! with name)|params\[(?P<place>\d+)\]"
)


def telling_text(error: str, names: Callable[[], Sequence[str]], *, brief: bool = False) -> str:
    """An exception in one line; brief: cut short, and without addresses of PyTorch's sources.

    `names` are those of the parameters of the one module that DDP may speak of by their numbers; empty if not known.
    """
    text = _ALWAYS_SAID.sub("", error.strip())
    lines = [line.strip() for line in _FRAMES.split(text)[0].splitlines() if line.strip()]
    if not lines:
        return text.partition("\n")[0]
    first, telling = lines[0], _telling(lines[1:])
    last = telling or first
    if _UNNAMED.search(last):
        last = _with_names(last, names())
    if not telling:
        return clip_middle(_SOURCE_OF_TORCH.sub("", last), _LONGEST) if brief else last
    longest = _LONGEST if brief else 2 * _LONGEST
    return f"{_sentences(_SOURCE_OF_TORCH.sub('', first), longest)} … {clip_middle(last, longest)}"


def _sentences(text: str, longest: int) -> str:
    """As many whole sentences as there is room for."""
    end = text.rfind(". ", 0, longest)
    return text if len(text) <= longest else text[: end + 1] if end > 0 else clip(text, longest)


def _telling(rest: Sequence[str]) -> str:
    """The line that names parameters, or else the last that says what was wrong; empty where there is no other."""
    named = [line.partition(". ")[0] for line in rest if _PARAMETERS.search(line)]
    last = [line for line in rest if not _ADVICE.search(line) and not line.startswith(('File "', "^", "~"))]
    return next(iter((named or last)[-1:]), "")


def _with_names(text: str, names: Sequence[str]) -> str:
    """The text with the names of the parameters whose numbers it gives."""

    def named(match: re.Match[str]) -> str:
        several = [int(number) for number in re.findall(r"\d+", match["several"] or "")]
        numbers = several or [int(match["one"] or match["place"])]
        if any(number >= len(names) for number in numbers):
            return match[0]
        shown = listing(names[number] for number in numbers[:8]) + (", …" if len(numbers) > 8 else "")
        return f"{match[0]} ({shown})"

    return _UNNAMED.sub(named, text)
