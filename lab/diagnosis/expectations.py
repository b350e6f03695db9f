"""Compare a run with what its scenario expects, and apply the result to the verdict."""

from __future__ import annotations

import io
import math
import re
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.diagnosis.evidence import Evidence, Judgement
from lab.diagnosis.facts import RankFacts, RunFacts, signed_exit_code
from lab.diagnosis.reasons import describe_limits, render_left_out
from lab.errors import RecordError, ScenarioError
from lab.record.record_files import open_log
from lab.record.result import Attempt, Culprit, Expectation, RankResult
from lab.spec.expressions import NOTHING_EXPECTED, RankVariables, evaluate_expected, is_per_rank
from lab.spec.reading import find_near_match
from lab.spec.scenario import Expect

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_LONGEST_SHOWN = 200
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def apply_expectations(
    bare: Judgement,
    expect: Expect,
    evidence: Evidence,
    ranks: Sequence[RankResult],
    variables: Mapping[int, RankVariables],
    of_features: Sequence[Iterable[Expectation] | Callable[[bool], Sequence[Expectation]]] = (),
    attempts: Sequence[Attempt] = (),
    others: Sequence[Expectation] = (),
) -> tuple[Judgement, tuple[Expectation, ...]]:
    """Return the final judgement, and every expectation with whether it is met; for the verdict `error`, none.

    Args:
        bare: The judgement before expectations.
        expect: What the scenario expects.
        evidence: The run.
        ranks: Results of the ranks.
        variables: By rank: the variables in expressions.
        of_features: Results of keys that features add; or functions that return them, given whether everything else is
            as expected.
        attempts: All attempts, in order.
        others: Further expectations that must be met.
    """
    if bare.verdict == "error":
        return bare, ()
    searches = Searches()
    results = [*check_expectations(expect, ranks, variables, searches)]
    for stated in of_features:
        results += () if callable(stated) else stated
    results += [*_check_whole_run(expect, bare, evidence.facts, attempts[:-1], searches), *others]
    for stated in of_features:
        all_met = bare.verdict == expect.verdict and all(one.met for one in results)
        results += stated(all_met) if callable(stated) else ()
    unmet, other_verdict = [one for one in results if not one.met], expect.verdict != "passed"
    if unmet and (other_verdict or bare.verdict == "passed"):
        extra_count = f" (and {len(unmet) - 1} more)" if len(unmet) > 1 else ""
        reason = f"{unmet[0].sentence()}{extra_count}{describe_limits(evidence.facts)}"
        return replace(bare, verdict="failed", reason=reason), tuple(results)
    if other_verdict:
        bare = replace(bare, verdict="passed", reason=f"{expect.verdict} as expected: {bare.reason}")
    return bare, tuple(results)


def check_expectations(
    expect: Expect,
    ranks: Sequence[RankResult],
    variables: Mapping[int, RankVariables],
    searches: Searches | None = None,
) -> tuple[Expectation, ...]:
    """Compare what each rank did with what the scenario expects of it.

    A rank is expected to exit with 0 unless `expect.exit` says otherwise. If the scenario expects another verdict than
    `passed`, only ranks in `expect.exit` are checked. The same holds for ranks that the lab stopped. A negative code
    stands for the signal that killed the rank, as in torchrun and `subprocess` (-9: SIGKILL). Expectations of ranks
    that the run does not have come last.
    """
    known, searches = list[Expectation](), searches or Searches()
    for result in sorted(ranks, key=lambda result: result.rank):
        planned = result.parent is None  # the notes of an unplanned rank must be correct, but none is required
        if planned and (result.rank in expect.exit or (expect.verdict == "passed" and not result.stopped)):
            known.append(_check_exit(result, expect.exit.get(result.rank, 0)))
        for name, expected in expect.notes.items():
            if planned or name in result.notes:
                known += _check_note(name, expected, result, variables.get(result.rank), expect)
        if planned and result.rank in expect.logs:
            known.append(_check_log(result, expect.logs[result.rank], searches))
    return (*known, *_missing_ranks(expect, {result.rank for result in ranks}))


def _check_exit(result: RankResult, expected: int) -> Expectation:
    got = result.exit_code if result.exit_code is not None else result.signal or "(did not exit)"
    met = signed_exit_code(result.exit_code, result.signal) == expected
    shown = "(stopped by the lab)" if result.stopped else got
    return Expectation(what="exit", rank=result.rank, expected=expected, got=shown, met=met)


def _check_note(
    name: str, expected: Any, result: RankResult, variables: RankVariables | None, expect: Expect
) -> Iterator[Expectation]:
    from lab.diagnosis.finding import to_plain  # only few scenarios expect notes

    met = False
    try:
        if variables is None:
            raise ScenarioError(f"the variables of rank {result.rank} are not known")
        if (value := evaluate_expected(expected, variables)) is NOTHING_EXPECTED:
            return
        expected = to_plain(value)
        if name in result.notes:
            got = result.notes[name]
            met = equals_expected(value, got, expect.tolerance.relative, expect.tolerance.absolute)
        else:
            meant = find_near_match(name, result.notes)
            got = f"(nothing noted){f'; did you mean {meant!r}, which was noted?' if meant else ''}"
    except ScenarioError as error:  # the run is over, so report the problem as an unmet expectation
        got = f"({error.message})"
    yield Expectation(what=f"note {name}", rank=result.rank, expected=expected, got=got, met=met)


def _check_log(result: RankResult, pattern: str, searches: Searches) -> Expectation:
    match, got = None, "(no log)"
    try:
        if result.log_path is not None:
            match = searches.find_in_log(result.log_path, pattern)
            got = "(no match)" if match is None else match[:_LONGEST_SHOWN]
    except FileNotFoundError:
        pass
    except (TooLong, RecordError) as error:
        got = f"({error})"
    except OSError as error:
        got = f"(the log cannot be read: {error.strerror or error})"
    return Expectation(what="log", rank=result.rank, expected=pattern, got=got, met=match is not None)


def _missing_ranks(expect: Expect, present: set[int]) -> Iterator[Expectation]:
    """Return unmet expectations of ranks that the run does not have, so that they are not ignored."""
    notes = [(f"note {name}", expected) for name, expected in expect.notes.items() if is_per_rank(expected)]
    for what, by_rank in [("exit", expect.exit), *notes, ("log", expect.logs)]:
        for rank in sorted(by_rank.keys() - present):
            yield Expectation(what=what, rank=rank, expected=by_rank[rank], got="(no such rank)", met=False)


def _check_whole_run(
    expect: Expect, bare: Judgement, facts: RunFacts, earlier: Sequence[Attempt], searches: Searches
) -> Iterator[Expectation]:
    """Check the expectations of the whole run, and of its earlier attempts."""
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
        who, met = _compare_culprit(expect.culprit, bare.culprit)
        yield Expectation(what="culprit", expected=expect.culprit, got=who, met=met)
    if expect.reason is not None:
        met, got = False, bare.reason
        try:
            met = searches.find(bare.reason, expect.reason) is not None
        except TooLong as error:
            got = f"({error})"
        yield Expectation(what="reason", expected=f"/{expect.reason}/", got=got, met=met)
    if isinstance(expect.restarts, int):
        met = len(earlier) == expect.restarts
        yield Expectation(what="restarts", expected=expect.restarts, got=len(earlier), met=met)
    elif expect.restarts is not None:  # the first culprit of each attempt
        pairs = zip(chain(expect.restarts, repeat(None)), earlier, strict=False)
        named = [_compare_culprit(wanted, attempt.culprit) for wanted, attempt in pairs]
        met = len(earlier) == len(expect.restarts) and all(same for _, same in named)
        yield Expectation(what="restarts", expected=[*expect.restarts], got=[who for who, _ in named], met=met)


def _end_of_check(check: RankFacts) -> str:
    ended = f"killed by {check.signal}" if check.signal else f"exit code {check.code}"
    return "killed: out of memory" if check.out_of_memory else next(iter(check.error.strip().splitlines()), ended)


def _compare_culprit(expected: int | str | None, culprit: Culprit | None) -> tuple[int | str | None, bool]:
    """Return the rank of a culprit, or its node if one is expected, and whether it is as expected; None: nobody."""
    if culprit is None:
        return None, expected is None
    who = culprit.node if isinstance(expected, str) else culprit.rank
    return who, expected is not None and expected == who


def equals_expected(expected: Any, got: Any, relative: float, absolute: float) -> bool:
    """Return whether a noted value equals the expected one.

    Integers, text, booleans, and None must be equal. If one number is a float, they may differ by the larger of
    `absolute` and `relative` times the expected one. Lists and mappings are compared item by item. NaN equals NaN; a
    boolean is no number. Notes are JSON: floats that it lacks are the strings `nan`, `inf`, and `-inf`.
    """
    if isinstance(expected, (list, tuple)):
        alike = isinstance(got, (list, tuple)) and len(expected) == len(got)
        return alike and all(equals_expected(*both, relative, absolute) for both in zip(expected, got, strict=True))
    if isinstance(expected, Mapping):
        alike = isinstance(got, Mapping) and expected.keys() == got.keys()
        return alike and all(equals_expected(item, got[key], relative, absolute) for key, item in expected.items())
    if isinstance(expected, float) and isinstance(got, str):
        got = _NON_FINITE.get(got, got)
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (expected, got)):
        return type(expected) is type(got) and bool(expected == got)
    if isinstance(expected, int) and isinstance(got, int):
        return expected == got
    try:
        expected, got = float(expected), float(got)
    except OverflowError:  # the integer is larger than every float
        return False
    if not math.isfinite(expected) or not math.isfinite(got):
        return bool(expected == got) or (math.isnan(expected) and math.isnan(got))
    return bool(abs(expected - got) <= max(relative * abs(expected), absolute))


LOG_CHUNK = 1024 * 1024
"""Characters of a log that are read at once."""
LONGEST_MATCH = 1024 * 1024
"""Longest match in a log, in characters, that is sure to be found."""
LIMIT_S = 20
"""Seconds of CPU time after which the searches of a run are given up; a long log adds to it."""
_BYTES_PER_S = 10_000_000
_LOOK_AHEAD = 64 * 1024
_GOES_BACK = frozenset("*+?{|")


class TooLong(Exception):
    """A search timed out; the message says after how long."""


class Searches:
    """Searches that share a limit of CPU time: those of one run, whose ranks can print text that is slow to search.

    Args:
        limit_s: Seconds of CPU time; a long log adds to it.
    """

    def __init__(self, limit_s: float | None = None) -> None:
        self._limit_s = self._left_s = float(LIMIT_S if limit_s is None else limit_s)
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
            extra_s = 0 if path in self._logs else log.seek(0, 2) // _BYTES_PER_S
        self._logs.add(path)
        self._limit_s += extra_s
        self._left_s += extra_s
        return self._limited(pattern, lambda: find_in_log(path, pattern))

    def _limited(self, pattern: str, search: Callable[[], str | None]) -> str | None:
        """Search in a forked child. The CPU time of the fork itself, which is most of it, does not count."""
        if _GOES_BACK.isdisjoint(pattern):
            return search()
        if self._left_s <= 0:
            raise TooLong(f"the lab skipped this pattern: earlier patterns of the run took {self._limit_s:g} s")
        from multiprocessing import get_context  # only few patterns need it

        context, limit_s = get_context("fork"), math.ceil(self._left_s)
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_answer, args=(sender, search, limit_s), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about other threads, which the child does not need
            child.start()
        sender.close()
        try:
            match, took_s = receiver.recv()
        except EOFError:
            child.join()
            killed = (child.exitcode or 0) < 0
            match = TooLong(f"the search for the pattern {f'timed out after {limit_s} s' if killed else 'failed'}")
            took_s = limit_s if killed else 0.0
        finally:
            child.kill()
            child.join()
        self._left_s -= took_s
        if isinstance(match, Exception):
            raise match
        text: str | None = match
        return text


def _search(text: str, pattern: str, flags: int) -> str | None:
    match = _compiled(pattern, flags).search(text)
    return match.group() if match else None


def _compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(pattern, flags)


def _answer(sender: Connection, search: Callable[[], str | None], limit_s: int) -> None:
    """Search in the child, and send the match or the error, and the CPU time."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for limit, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, limit_s)):
        hard = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    match: str | OSError | None
    began_s = time.process_time()
    try:
        match = search()
    except OSError as error:
        match = error
    sender.send((match, time.process_time() - began_s))


def find_in_log(path: Path, pattern: str) -> str | None:
    """Find a match like `Searches.find_in_log`, without a limit of time.

    Reads the log in chunks of `LOG_CHUNK` characters that overlap by `LONGEST_MATCH`, so memory is bounded. May miss or
    cut a match that is longer than the overlap.
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
            # More text can change a match near the end, so search again from its start. One character
            # before that stays, for ^, \b, \A, and look-behinds.
            start = match.start() if match else max(start, len(window) - LONGEST_MATCH)
            cut = max(0, start - _LOOK_AHEAD)
            window, start = window[cut:], start - cut
