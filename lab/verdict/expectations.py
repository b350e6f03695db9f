"""Whether what came out of the ranks is what the scenario expects: exit codes, notes and logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.errors import ScenarioError
from lab.record.result import Expectation, RankResult
from lab.spec.expressions import NOTHING_EXPECTED, RankVariables, evaluate, is_per_rank
from lab.spec.problems import near
from lab.spec.scenario import Expect
from lab.verdict.facts import returncode
from lab.verdict.logs import find_in_log
from lab.verdict.values import as_json, equal

_LONGEST_SHOWN = 200


def check_expectations(
    expect: Expect, ranks: Sequence[RankResult], variables: Mapping[int, RankVariables]
) -> tuple[Expectation, ...]:
    """Compares what each rank did with what it had to do.

    Every rank is expected to exit with 0 unless `expect.exit` says otherwise; where the scenario expects another
    verdict than `passed`, only the ranks that `expect.exit` names. A negative code stands for the signal that killed
    the rank, as torchrun and `subprocess` write it (-9: SIGKILL). What is expected of ranks that the run does not have
    comes last.
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


def _check_exit(result: RankResult, expected: int) -> Expectation:
    nothing = "(stopped by the lab)" if result.stopped else "(did not exit)"
    got = result.exit_code if result.exit_code is not None else result.signal or nothing
    met = returncode(result.exit_code, result.signal) == expected
    return Expectation(what="exit", rank=result.rank, expected=expected, got=got, met=met)


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
    yield Expectation(what=what, rank=result.rank, expected=as_json(value), got=got, met=met)


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
