"""Whether what came out is what the scenario expects, and what becomes of the verdict when that is considered."""

from __future__ import annotations

import io
import math
import os
import re
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from lab.diagnosis.evidence import Evidence, Judgement
from lab.diagnosis.facts import RankFacts, RunFacts, returncode
from lab.diagnosis.reasons import describe_limits_and_orphans, render_left_out
from lab.errors import RecordError, ScenarioError
from lab.record.record_files import open_log
from lab.record.result import Attempt, Culprit, Expectation, RankResult
from lab.spec.expressions import NOTHING_EXPECTED, RankVariables, evaluate, is_per_rank
from lab.spec.reading import near
from lab.spec.scenario import Expect

_LONGEST_SHOWN = 200
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def settle(
    bare: Judgement,
    expect: Expect,
    evidence: Evidence,
    ranks: Sequence[RankResult],
    variables: Mapping[int, RankVariables],
    of_features: Sequence[Iterable[Expectation] | Callable[[bool], Sequence[Expectation]]] = (),
    attempts: Sequence[Attempt] = (),
    others: Sequence[Expectation] = (),
) -> tuple[Judgement, tuple[Expectation, ...]]:
    """The final judgement, and every expectation with whether it was met; of a run that is an error, none.

    `of_features` is what came of keys that features add, or, where that depends on whether all the rest is as expected,
    what says it then. `others` had to come too.
    """
    if bare.verdict == "error":
        return bare, ()
    searches = Searches()
    found = [*check_expectations(expect, ranks, variables, searches)]
    for one in of_features:
        if not callable(one):
            found += one
    found += _check_whole_run(expect, bare, evidence.facts, searches)
    if expect.restarts is not None:
        found.append(_check_restarts(expect.restarts, attempts[:-1]))
    found += others
    for one in of_features:
        if callable(one):
            found += one(bare.verdict == expect.verdict and all(one.met for one in found))
    unmet = [one for one in found if not one.met]
    final, as_expected = bare, expect.verdict != "passed"
    if unmet and (as_expected or bare.verdict == "passed"):
        more = f" (and {len(unmet) - 1} more)" if len(unmet) > 1 else ""
        final = replace(
            bare, verdict="failed", reason=f"{unmet[0].sentence()}{more}{describe_limits_and_orphans(evidence.facts)}"
        )
    elif as_expected:
        final = replace(bare, verdict="passed", reason=f"{expect.verdict} as expected: {bare.reason}")
    return final, tuple(found)


def check_expectations(
    expect: Expect,
    ranks: Sequence[RankResult],
    variables: Mapping[int, RankVariables],
    searches: Searches | None = None,
) -> tuple[Expectation, ...]:
    """Compares what each rank did with what it should have done.

    Every rank is expected to exit with 0 unless `expect.exit` says otherwise; only the ranks that it names are
    asked where the scenario expects another verdict than `passed`, and of ranks that the lab stopped, whose end was its
    doing. A negative code stands for the signal that killed the rank, as torchrun and `subprocess` write it (-9:
    SIGKILL). What is expected of ranks that the run does not have comes last.
    """
    found: list[Expectation] = []
    searches = searches or Searches()
    for result in sorted(ranks, key=lambda result: result.rank):
        if result.parent is not None:  # no scenario knows of it: what it noted has to be right, and is not missed
            for name in expect.notes.keys() & result.notes.keys():
                found.extend(_check_note(name, expect.notes[name], result, variables.get(result.rank), expect))
            continue
        if result.rank in expect.exit or (expect.verdict == "passed" and not result.stopped):
            found.append(_check_exit(result, expect.exit.get(result.rank, 0)))
        for name, expected in expect.notes.items():
            found.extend(_check_note(name, expected, result, variables.get(result.rank), expect))
        if result.rank in expect.logs:
            found.append(_check_log(result, expect.logs[result.rank], searches))
    return (*found, *_missing_ranks(expect, {result.rank for result in ranks}))


def _check_exit(result: RankResult, expected: int) -> Expectation:
    got: int | str = result.exit_code if result.exit_code is not None else result.signal or "(did not exit)"
    if result.stopped:
        got = "(stopped by the lab)"
    met = returncode(result.exit_code, result.signal) == expected
    return Expectation(what="exit", rank=result.rank, expected=expected, got=got, met=met)


def _check_note(
    name: str, expected: Any, result: RankResult, variables: RankVariables | None, expect: Expect
) -> Iterator[Expectation]:
    met = False
    try:
        if variables is None:
            raise ScenarioError(f"the variables of rank {result.rank} are not known")
        value = evaluate(expected, variables)
        if value is NOTHING_EXPECTED:
            return
        expected = as_json(value)
        if name in result.notes:
            got = result.notes[name]
            met = equal(value, got, expect.tolerance.relative, expect.tolerance.absolute)
        else:
            meant = near(name, result.notes)
            got = f"(nothing noted){f'; did you mean {meant!r}, which was noted?' if meant else ''}"
    except ScenarioError as error:  # the run is over and its other facts still count: this is not met, and says why
        got = f"({error.message})"
    yield Expectation(what=f"note {name}", rank=result.rank, expected=expected, got=got, met=met)


def _check_log(result: RankResult, pattern: str, searches: Searches) -> Expectation:
    match, got = None, "(no log)"
    if result.log_path is not None:
        try:
            match = searches.find_in_log(result.log_path, pattern)
            got = "(no match)" if match is None else match[:_LONGEST_SHOWN]
        except FileNotFoundError:
            pass
        except TooLong as error:
            got = f"({error})"
        except RecordError as error:
            got = f"({error.message})"
        except OSError as error:
            got = f"(the log cannot be read: {error.strerror or error})"
    return Expectation(what="log", rank=result.rank, expected=pattern, got=got, met=match is not None)


def _missing_ranks(expect: Expect, present: set[int]) -> Iterator[Expectation]:
    """What is expected of ranks that the run does not have: it cannot be met, and must not be ignored."""
    notes = [(f"note {name}", expected) for name, expected in expect.notes.items() if is_per_rank(expected)]
    for what, by_rank in [("exit", expect.exit), *notes, ("log", expect.logs)]:
        for rank in sorted(by_rank.keys() - present):
            yield Expectation(what=what, rank=rank, expected=by_rank[rank], got="(no such rank)", met=False)


def _check_whole_run(expect: Expect, bare: Judgement, facts: RunFacts, searches: Searches) -> Iterator[Expectation]:
    check = facts.check
    if expect.check is not None and check is not None:
        met, got = check.code == 0 and not check.error, "it passed"
        if not met:
            got = "; ".join(filter(None, (_end_of_check(check), render_left_out(facts.staged))))
        yield Expectation(what=f"check {expect.check}", expected="it passes", got=got, met=met)
    if expect.verdict != "passed":
        met = bare.verdict == expect.verdict
        yield Expectation(what="verdict", expected=expect.verdict, got=bare.verdict, met=met)
    if expect.culprit is not None:
        named = bare.culprit
        who = None if named is None else named.node if isinstance(expect.culprit, str) else named.rank
        yield Expectation(what="culprit", expected=expect.culprit, got=who, met=_is_named(expect.culprit, named))
    if expect.reason is not None:
        met, got = False, bare.reason
        try:
            met = searches.find(bare.reason, expect.reason) is not None
        except TooLong as error:
            got = f"({error})"
        yield Expectation(what="reason", expected=f"/{expect.reason}/", got=got, met=met)


def _end_of_check(check: RankFacts) -> str:
    if check.out_of_memory:
        return "killed for lack of memory"
    ended = f"killed by {check.signal}" if check.signal else f"exit code {check.code}"
    return next(iter(check.error.strip().splitlines()), ended)


def _check_restarts(expected: int | Sequence[int | str | None], earlier: Sequence[Attempt]) -> Expectation:
    """How often the launcher began anew, and where they are named, who had failed first each time."""
    if isinstance(expected, int):
        return Expectation(what="restarts", expected=expected, got=len(earlier), met=len(earlier) == expected)
    found = [attempt.culprit for attempt in earlier]
    names = [(None, None) if one is None else (one.rank, one.node) for one in found]
    met = len(names) == len(expected) and all(map(_is_named, expected, found))
    pairs = zip(expected, names, strict=False)
    got = [node if isinstance(wanted, str) else rank for wanted, (rank, node) in pairs]
    got += [rank for rank, _ in names[len(expected) :]]
    return Expectation(what="restarts", expected=list(expected), got=got, met=met)


def _is_named(expected: int | str | None, culprit: Culprit | None) -> bool:
    """Whether a culprit is the expected rank, or on the expected node; None: nobody."""
    if expected is None or culprit is None:
        return expected is None and culprit is None
    return expected == (culprit.node if isinstance(expected, str) else culprit.rank)


def equal(expected: Any, got: Any, relative: float, absolute: float) -> bool:
    """Whether a noted value is the expected one.

    Two whole numbers, text, booleans and None have to be the same; numbers of which one is a float may differ by the
    larger of `absolute` and `relative` times the expected one; lists and mappings are compared item by item. NaN equals
    NaN; a boolean is not a number. What was noted is JSON: floats that it lacks are the strings `nan`, `inf`, `-inf`.
    """
    if isinstance(expected, (list, tuple)):
        alike = isinstance(got, (list, tuple)) and len(expected) == len(got)
        return alike and all(equal(*both, relative, absolute) for both in zip(expected, got, strict=True))
    if isinstance(expected, Mapping):
        alike = isinstance(got, Mapping) and expected.keys() == got.keys()
        return alike and all(equal(item, got[key], relative, absolute) for key, item in expected.items())
    if isinstance(expected, float) and isinstance(got, str):
        got = _NON_FINITE.get(got, got)
    numbers = [isinstance(value, (int, float)) and not isinstance(value, bool) for value in (expected, got)]
    if not all(numbers):
        return type(expected) is type(got) and bool(expected == got)
    if isinstance(expected, int) and isinstance(got, int):
        return expected == got
    try:
        expected, got = float(expected), float(got)
    except OverflowError:  # a whole number beyond every float
        return False
    if not math.isfinite(expected) or not math.isfinite(got):
        return bool(expected == got) or (math.isnan(expected) and math.isnan(got))
    return bool(abs(expected - got) <= max(relative * abs(expected), absolute))


def as_json(value: Any) -> Any:
    """The value with the floats that JSON lacks written as notes write them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return value


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
    """As `Searches.find_in_log`, however long it takes.

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
