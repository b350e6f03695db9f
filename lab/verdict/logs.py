"""Looking for a pattern in a log of any size."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

CHUNK = 1024 * 1024
"""Characters of a log that are read at once."""
LONGEST_MATCH = 1024 * 1024
"""Characters over which a match in a log may extend and still surely be found."""
_LOOK_AHEAD = 64 * 1024


def find_in_log(path: Path, pattern: str) -> str | None:
    """The first match of a regular expression in a log, with `^` and `$` at the ends of lines.

    The log is read in pieces of `CHUNK` characters that overlap by `LONGEST_MATCH`, so that one of any size fits in
    little memory; a match that extends further than the overlap may be missed or found shorter.

    Raises:
        OSError: the log cannot be read.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expression = re.compile(pattern, re.MULTILINE)
    with open(path, encoding="utf-8", errors="replace") as log:
        window, start = "", 0
        while True:
            chunk = log.read(CHUNK)
            window += chunk
            match = expression.search(window, start)
            if not chunk:
                return match.group() if match else None
            if match and (match.end() <= len(window) - _LOOK_AHEAD or len(window) - match.start() > LONGEST_MATCH):
                return match.group()
            # What follows may still change a match near the end, so the search goes on from its start. One character
            # before that stays, for ^, \b, \A and look-behinds.
            start = match.start() if match else max(start, len(window) - LONGEST_MATCH)
            cut = max(0, start - _LOOK_AHEAD)
            window, start = window[cut:], start - cut
