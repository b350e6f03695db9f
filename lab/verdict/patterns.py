"""Regular expressions of scenarios, searched in logs and reasons within a limit of time.

A pattern may take years where what it is searched in was made for that. Python's `re` cannot be stopped, so whatever
can go back at all is searched in a child process, which the kernel ends when it has computed for too long.
"""

from __future__ import annotations

import io
import os
import re
import resource
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from lab.record.record_files import open_file
from lab.record.result import split_log_path

LOG_CHUNK = 1024 * 1024
"""Characters of a log that are read at once."""
LONGEST_MATCH = 1024 * 1024
"""Characters over which a match in a log may extend and still surely be found."""
LIMIT_S = 20
"""Whole seconds of computing time after which a search is given up; in a long log, it has more."""
_BYTES_PER_S = 10_000_000
_LOOK_AHEAD = 64 * 1024
_GOES_BACK = frozenset("*+?{")
_FOUND, _MISSED, _FAILED = b"+", b"-", b"!"


class TooLong(Exception):
    """A search was given up; the text says after how long."""


def found_in(text: str, pattern: str, flags: int = 0) -> str | None:
    """The first match of a pattern in a text.

    Raises:
        TooLong: it takes too long to search.
    """
    return _limited(pattern, lambda: _search(text, pattern, flags), LIMIT_S)


def found_in_log(path: Path, pattern: str) -> str | None:
    """The first match of a pattern in a log, with `^` and `$` at the ends of lines.

    Raises:
        OSError: the log cannot be read.
        RecordError: the log is no regular file.
        TooLong: it takes too long to search.
    """
    with open_file(*split_log_path(path)) as log:
        limit_s = LIMIT_S + log.seek(0, 2) // _BYTES_PER_S
    return _limited(pattern, lambda: find_in_log(path, pattern), limit_s)


def _search(text: str, pattern: str, flags: int) -> str | None:
    match = _compiled(pattern, flags).search(text)
    return match.group() if match else None


def _compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(pattern, flags)


def _limited(pattern: str, search: Callable[[], str | None], limit_s: int) -> str | None:
    if _GOES_BACK.isdisjoint(pattern):
        return search()
    read, write = os.pipe2(os.O_CLOEXEC)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads: the child needs none of them
        child = os.fork()
    if child == 0:
        _answer(write, search, limit_s)
    os.close(write)
    try:
        with open(read, "rb") as answer:
            said = answer.read()
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) or not said:
        how = f"was given up after {limit_s} s" if os.WIFSIGNALED(status) else "broke off"
        raise TooLong(f"the search for the pattern {how}")
    kind, text = said[:1], said[1:].decode("utf-8", "surrogatepass")
    if kind == _FAILED:
        number, _, words = text.partition(" ")
        raise OSError(int(number), words)
    return text if kind == _FOUND else None


def _answer(write: int, search: Callable[[], str | None], limit_s: int) -> NoReturn:
    """In the child: search, say what was found, and end."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(
            resource.RLIMIT_CPU, (limit_s if hard == resource.RLIM_INFINITY else min(limit_s, hard), hard)
        )
        try:
            found = search()
            said = _MISSED if found is None else _FOUND + found.encode("utf-8", "surrogatepass")
        except OSError as error:
            said = _FAILED + f"{error.errno or 0} {error.strerror or error}".encode()
        with open(write, "wb") as answer:
            answer.write(said)
        os._exit(0)
    finally:
        os._exit(1)


def find_in_log(path: Path, pattern: str) -> str | None:
    """As `found_in_log`, however long it takes.

    The log is read in pieces of `LOG_CHUNK` characters that overlap by `LONGEST_MATCH`, so that one of any size fits in
    little memory; a match that extends further than the overlap may be missed or found shorter.
    """
    expression = _compiled(pattern, re.MULTILINE)
    with io.TextIOWrapper(open_file(*split_log_path(path)), encoding="utf-8", errors="replace") as log:
        window, start = "", 0
        while True:
            chunk = log.read(LOG_CHUNK)
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
