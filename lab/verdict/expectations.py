"""Whether what came out of the ranks is what the scenario expects: exit codes, notes and logs."""

from __future__ import annotations

import math
import re
import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.errors import ScenarioError
from lab.record.result import Expectation, RankResult
from lab.spec.expressions import NOTHING_EXPECTED, RankVariables, evaluate, is_per_rank
from lab.spec.problems import near
from lab.spec.scenario import Expect

CHUNK = 1024 * 1024
"""Characters of a log that are read at once."""
LONGEST_MATCH = 1024 * 1024
"""Characters over which a match in a log may extend and still surely be found."""
_LOOK_AHEAD = 64 * 1024
_LONGEST_SHOWN = 200
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def check_expectations(
    expect: Expect, ranks: Sequence[RankResult], variables: Mapping[int, RankVariables]
) -> tuple[Expectation, ...]:
    """Compares what each rank did with what it had to do.

    Every rank is expected to exit with 0 unless `expect.exit` says otherwise; where the scenario expects another
    verdict than `passed`, only the ranks that `expect.exit` names. A negative code stands for the signal that killed
    the rank, as torchrun and `subprocess` write it (-9: SIGKILL).

    Args:
        expect: what must come out. `check`, `verdict`, `culprit` and `reason` speak of the whole run and are not
            looked at here.
        ranks: what came out; logs are read from their `log_path`, piece by piece.
        variables: what expressions may use, by rank.

    Returns:
        One expectation for each rank and thing, rank by rank; then those of ranks that the run does not have.
    """
    found: list[Expectation] = []
    for result in sorted(ranks, key=lambda result: result.rank):
        if expect.verdict == "passed" or result.rank in expect.exit:
            found.append(_check_exit(result, expect.exit.get(result.rank, 0)))
        for name, expected in expect.notes.items():
            found.extend(_check_note(name, expected, result, variables.get(result.rank), expect))
        if result.rank in expect.logs:
            found.append(_check_log(result, expect.logs[result.rank]))
    return (*found, *_missing_ranks(expect, {result.rank for result in ranks}))


def equal(expected: Any, got: Any, relative: float, absolute: float) -> bool:
    """Whether a noted value is the expected one.

    Args:
        expected: plain data.
        got: a JSON value; floats that JSON lacks are the strings `nan`, `inf` and `-inf`.
        relative: largest difference of a float, relative to the expected one.
        absolute: largest difference of a float; the larger of the two counts.

    Returns:
        True if they are equal: two whole numbers, text, booleans and None exactly; numbers of which one is a float
        within the tolerances; lists and mappings item by item. NaN equals NaN; a boolean is not a number.
    """
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(got, (list, tuple))
            and len(expected) == len(got)
            and all(equal(*both, relative, absolute) for both in zip(expected, got, strict=True))
        )
    if isinstance(expected, Mapping):
        return (
            isinstance(got, Mapping)
            and expected.keys() == got.keys()
            and all(equal(item, got[key], relative, absolute) for key, item in expected.items())
        )
    if isinstance(expected, float) and isinstance(got, str):
        got = _NON_FINITE.get(got, got)
    if not _is_number(expected) or not _is_number(got):
        return type(expected) is type(got) and bool(expected == got)
    if isinstance(expected, int) and isinstance(got, int):
        return expected == got
    return _close(expected, got, relative, absolute)


def find_in_log(path: Path, pattern: str) -> str | None:
    """The first match of a regular expression in a log, with `^` and `$` at the ends of lines.

    The log is read in pieces of `CHUNK` characters that overlap by `LONGEST_MATCH`, so that one of any size fits in
    little memory; a match that extends further than the overlap may be missed or found shorter.

    Args:
        path: the log; bytes that are not UTF-8 are replaced, line ends become a newline.
        pattern: regular expression in Python's syntax.

    Returns:
        What matched; None if nothing does.

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


def _check_exit(result: RankResult, expected: int) -> Expectation:
    got: int | str
    if result.exit_code is not None:
        got, met = result.exit_code, result.exit_code == expected
    elif result.signal is not None:
        got, met = result.signal, expected == -_signal_number(result.signal)
    else:
        got, met = "(stopped by the lab)" if result.stopped else "(did not exit)", False
    return Expectation(what="exit", rank=result.rank, expected=expected, got=got, met=met)


def _signal_number(name: str) -> int:
    try:
        return int(signal.Signals[name])
    except KeyError:
        return 0


def _check_note(
    name: str, expected: Any, result: RankResult, variables: RankVariables | None, expect: Expect
) -> Iterator[Expectation]:
    what = f"note {name}"
    try:
        if variables is None:
            raise ScenarioError(f"the variables of rank {result.rank} are not known")
        value = evaluate(expected, variables)
    except ScenarioError as error:
        # The run is over and its other facts still count: this one cannot be met, and says why.
        yield Expectation(what=what, rank=result.rank, expected=expected, got=f"({error.message})", met=False)
        return
    if value is NOTHING_EXPECTED:
        return
    if name in result.notes:
        got = result.notes[name]
        met = equal(value, got, expect.tolerance.relative, expect.tolerance.absolute)
    else:
        got, met = _nothing_noted(name, result.notes), False
    yield Expectation(what=what, rank=result.rank, expected=_as_json(value), got=got, met=met)


def _nothing_noted(name: str, notes: Mapping[str, Any]) -> str:
    meant = near(name, notes)
    return f"(nothing noted); did you mean {meant!r}, which was noted?" if meant else "(nothing noted)"


def _check_log(result: RankResult, pattern: str) -> Expectation:
    met, got = False, "(no log)"
    if result.log_path is not None:
        try:
            match = find_in_log(result.log_path, pattern)
            met, got = match is not None, "(no match)" if match is None else match[:_LONGEST_SHOWN]
        except FileNotFoundError:
            pass
        except OSError as error:
            got = f"(the log cannot be read: {error.strerror or error})"
    return Expectation(what="log", rank=result.rank, expected=pattern, got=got, met=met)


def _missing_ranks(expect: Expect, present: set[int]) -> Iterator[Expectation]:
    """What is expected of ranks that the run does not have: it cannot be met, and must not be passed over."""
    per_rank: list[tuple[str, Mapping[int, Any]]] = [("exit", expect.exit)]
    per_rank += [(f"note {name}", expected) for name, expected in expect.notes.items() if is_per_rank(expected)]
    per_rank += [("log", expect.logs)]
    for what, by_rank in per_rank:
        for rank in sorted(by_rank.keys() - present):
            yield Expectation(what=what, rank=rank, expected=by_rank[rank], got="(no such rank)", met=False)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _close(expected: float, got: float, relative: float, absolute: float) -> bool:
    try:
        expected, got = float(expected), float(got)
    except OverflowError:  # a whole number beyond every float
        return False
    if math.isnan(expected) or math.isnan(got):
        return math.isnan(expected) and math.isnan(got)
    if math.isinf(expected) or math.isinf(got):
        return expected == got
    return abs(expected - got) <= max(relative * abs(expected), absolute)


def _as_json(value: Any) -> Any:
    """The value with the floats that JSON lacks written as notes write them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    return value
