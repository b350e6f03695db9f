"""`expect: calls:` on real runs, with whatever recorder the engine has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab import Result
from lab.features.calls.notation import render_calls
from lab.record.read import Record
from lab.spec.scenario import Expect
from lab.trace.read import read_trace
from tests.golden import golden

pytestmark = pytest.mark.local_first  # what came out is judged on this side of the engine
Run = Callable[..., Result]


def rendered(result: Result, rank: int) -> list[str]:
    assert result.path is not None
    trace = read_trace(Record(path=result.path))
    return render_calls(trace.ranks[rank].calls, trace.groups)


def test_what_a_run_called_can_be_stated_as_it_is_rendered(run: Run) -> None:
    first = run("collectives.py")
    stated = {rank: tuple(rendered(first, rank)) for rank in range(3)}
    assert all(stated.values())

    again = run("collectives.py", expect=Expect(extra={"calls": stated}))

    assert again.passed, again.reason
    assert [one.rank for one in again.expectations if one.what == "calls"] == [0, 1, 2]


def test_the_first_call_that_differs_fails_the_run_and_is_named_with_its_line(run: Run) -> None:
    calls = rendered(run("collectives.py"), 1)

    result = run("collectives.py", expect=Expect(extra={"calls": {1: (calls[0], "monitored_barrier", "...")}}))

    assert (result.verdict, result.exit_code) == ("failed", 1)
    assert result.reason.startswith(golden(1))
    assert " at collectives.py:" in result.reason


def test_without_tracing_the_reason_says_that_calls_were_not_recorded(run: Run) -> None:
    result = run("collectives.py", expect=Expect(extra={"calls": ("...",)}), trace=False)

    assert result.verdict == "failed"
    assert golden(1) in result.reason


def test_calls_of_a_rank_that_hangs_count_up_to_the_hang(hang: Run) -> None:
    calls = {0: ("all_reduce x2",), 1: ("all_reduce",)}
    result = hang("hang.py", "rank_1_never_comes", expect=Expect(verdict="hung", extra={"calls": calls}))
    assert result.passed, result.reason


@pytest.mark.parametrize("rank", [3, 99])
def test_calls_of_a_rank_that_the_run_has_not_are_refused(run: Run, rank: int) -> None:
    with pytest.raises(Exception, match=golden(1, rank)):
        run("collectives.py", expect=Expect(extra={"calls": {rank: ()}}))
