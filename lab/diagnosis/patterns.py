"""Regular expressions of scenarios, searched in logs and reasons within a limit of time.

A pattern may take years where what it is searched in was made for that. Python's `re` cannot be stopped, so whatever
can go back at all is searched in a child process, which the kernel ends when it has computed for too long.
"""

from __future__ import annotations

import io
import math
import os
import re
import resource
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from lab.record.record_files import open_log

LOG_CHUNK = 1024 * 1024
"""Characters of a log that are read at once."""
LONGEST_MATCH = 1024 * 1024
"""Characters over which a match in a log may extend and still surely be found."""
LIMIT_S = 20
"""Whole seconds of computing time after which the searches of a run are given up; a long log adds to them."""
_BYTES_PER_S = 10_000_000
_LOOK_AHEAD = 64 * 1024
_GOES_BACK = frozenset("*+?{|")
_FOUND, _MISSED, _FAILED = b"+", b"-", b"!"


class TooLong(Exception):
    """A search was given up; the text says after how long."""


class Searches:
    """Searches that have a limit of computing time together: those of one run, whose ranks can print what takes long.

    Args:
        limit_s: seconds of computing; a long log adds to them.
    """

    def __init__(self, limit_s: float | None = None) -> None:
        self._given_s = self._left_s = float(LIMIT_S if limit_s is None else limit_s)
        self._logs: set[Path] = set()

    def find(self, text: str, pattern: str, flags: int = 0) -> str | None:
        """Find the first match of a pattern in a text.

        Raises:
            TooLong: it takes too long to search.
        """
        return self._limited(pattern, lambda: _search(text, pattern, flags))

    def find_in_log(self, path: Path, pattern: str) -> str | None:
        """Find the first match of a pattern in a log, with `^` and `$` at the ends of lines.

        Raises:
            OSError: the log cannot be read.
            RecordError: the log is no regular file.
            TooLong: it takes too long to search.
        """
        with open_log(path) as log:
            more_s = 0 if path in self._logs else log.seek(0, 2) // _BYTES_PER_S
        self._logs.add(path)
        self._given_s += more_s
        self._left_s += more_s
        return self._limited(pattern, lambda: find_in_log(path, pattern))

    def _limited(self, pattern: str, search: Callable[[], str | None]) -> str | None:
        if _GOES_BACK.isdisjoint(pattern):
            return search()
        if self._left_s <= 0:
            raise TooLong(f"the search for the pattern was not begun: others of this run took {self._given_s:g} s")
        found, took_s = _search_in_child(search, math.ceil(self._left_s))
        self._left_s -= took_s
        if isinstance(found, Exception):
            raise found
        return found


def found_in(text: str, pattern: str, flags: int = 0) -> str | None:
    """The first match of a pattern in a text, as `Searches.find` finds it."""
    return Searches().find(text, pattern, flags)


def found_in_log(path: Path, pattern: str) -> str | None:
    """The first match of a pattern in a log, as `Searches.find_in_log` finds it."""
    return Searches().find_in_log(path, pattern)


def _search(text: str, pattern: str, flags: int) -> str | None:
    match = _compiled(pattern, flags).search(text)
    return match.group() if match else None


def _compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(pattern, flags)


def _search_in_child(search: Callable[[], str | None], limit_s: int) -> tuple[str | Exception | None, float]:
    """Search in a forked child.

    Returns:
        The match or the error, and the seconds that the search computed. What the fork itself costs, which depends on
        the size of this process, is not counted.
    """
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
        _, status, usage = os.wait4(child, 0)
    took_s = usage.ru_utime + usage.ru_stime
    if os.WIFSIGNALED(status):  # the kernel counts a little more than it says
        return TooLong(f"the search for the pattern was given up after {limit_s} s"), max(took_s, limit_s)
    if not said:
        return TooLong("the search for the pattern broke off"), took_s
    took, _, text = said[1:].decode("utf-8", "surrogatepass").partition(" ")
    kind, took_s = said[:1], float(took)
    if kind == _FAILED:
        number, _, words = text.partition(" ")
        return OSError(int(number), words), took_s
    return text if kind == _FOUND else None, took_s


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
        began_s = time.process_time()
        try:
            found = search()
            kind, text = (_MISSED, "") if found is None else (_FOUND, found)
        except OSError as error:
            kind, text = _FAILED, f"{error.errno or 0} {error.strerror or error}"
        with open(write, "wb") as answer:
            answer.write(kind + f"{time.process_time() - began_s:f} {text}".encode("utf-8", "surrogatepass"))
        os._exit(0)
    finally:
        os._exit(1)


def find_in_log(path: Path, pattern: str) -> str | None:
    """As `found_in_log`, however long it takes.

    The log is read in pieces of `LOG_CHUNK` characters that overlap by `LONGEST_MATCH`, so that one of any size fits in
    little memory; a match that extends further than the overlap may be missed or found shorter.
    """
    expression = _compiled(pattern, re.MULTILINE)
    with io.TextIOWrapper(open_log(path), encoding="utf-8", errors="replace") as log:
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
