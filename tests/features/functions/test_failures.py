from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

from lab.errors import RanksFailed
from lab.features.functions.answers import build_error, rebuild_error
from lab.features.functions.on_node.calls import describe_failure
from lab.features.functions.on_node.messages import Failure, Frame
from tests.golden import golden

HERE = Path(__file__)


def failure_of(action: Any, *args: Any) -> Failure:
    try:
        action(*args)
    except Exception as error:  # noqa: BLE001 - whatever it is
        return describe_failure(error)
    raise AssertionError("nothing was raised")


def inner(values: list[int], limit: int) -> None:
    if sum(values) > limit:
        raise ValueError(f"{sum(values)} is too much")


def outer(limit: int) -> None:
    try:
        inner([1, 2], limit)
    except ValueError as error:
        raise KeyError("limit") from error


def test_an_exception_is_of_its_class_and_of_the_lab_and_names_its_rank() -> None:
    error = rebuild_error(failure_of(inner, [2], 1), {}, header="rank 2: ", ranks=[2])
    assert isinstance(error, ValueError)
    assert isinstance(error, RanksFailed)
    assert error.ranks == (2,)
    assert str(error) == golden(1)
    assert traceback.format_exception_only(error) == [golden(2)]


def test_a_traceback_leads_through_the_lines_with_their_functions_and_arguments() -> None:
    error = rebuild_error(failure_of(inner, [2], 1), {str(HERE): str(HERE)}, header="")
    *_, last = traceback.walk_tb(error.__traceback__)
    assert (Path(last[0].f_code.co_filename), last[0].f_code.co_name) == (HERE, "inner")
    assert last[0].f_code.co_firstlineno == inner.__code__.co_firstlineno
    assert repr(last[0].f_locals) == "{'values': [2], 'limit': 1}"
    assert golden(1) in "".join(traceback.format_exception(error))


def test_what_an_exception_came_from_comes_with_it() -> None:
    error = rebuild_error(failure_of(outer, 1), {}, header="rank 0: ")
    assert isinstance(error, KeyError)
    assert str(error) == "rank 0: 'limit'"
    assert isinstance(error.__cause__, ValueError)


@pytest.mark.parametrize(
    ("module", "kind", "told"),
    [
        ("builtins", "OSError", "no"),
        ("builtins", "SystemExit", "SystemExit: no"),
        ("elsewhere", "Odd", "elsewhere.Odd: no"),
        ("builtins", "print", "print: no"),
        ("builtins", "BaseExceptionGroup", None),
    ],
)
def test_an_exception_of_any_class_can_be_raised(module: str, kind: str, told: str | None) -> None:
    error = rebuild_error(Failure(module, kind, "no", ()), {}, header="rank 1: ")
    assert isinstance(error, RanksFailed)
    assert told is None or str(error) in (f"rank 1: {told}", f"rank 1: {module}.{kind}: {told}")


@pytest.mark.parametrize(
    "place",
    [
        Frame("/dev/zero", 1, "f", 1, {}, {}),
        Frame("/etc/passwd", 1, "f", 1, {}, {}),
        Frame("<\x1b[2J>", 1, "f", 1, {}, {}),
        Frame(
            "a\0b.py",
            -5,
            "f\0\x1b[2J",
            1 << 62,
            {"not a name": "1", "class": "2", "__debug__": "3", "x": "\x1b]0;", "\uff58": "4"},
            {},
        ),
        Frame("", 1 << 70, "", 0, {"__frame__": "x", "__tracebackhide__": "y"}, {"x": "1"}, hidden=True),
    ],
)
def test_places_that_nobody_would_send_are_shown_harmlessly(place: Frame) -> None:
    error = rebuild_error(Failure("builtins", "ValueError", "no\x1b[2J", (place, place)), {}, header="")
    text = "".join(traceback.format_exception(error))
    assert "root:" not in text
    assert "\x1b[2J" not in text


def test_the_same_failure_on_several_ranks_is_told_once() -> None:
    same = failure_of(inner, [2], 1)
    error = build_error({0: same, 1: same, 2: same}, {}, record=Path("runs/x"))
    assert str(error) == golden(1)
    assert error.__notes__ == ["record: runs/x"]


def test_different_failures_are_all_told_and_those_that_lost_a_peer_only_named() -> None:
    lost = Failure("builtins", "RuntimeError", "[gloo] Connection closed by peer [127.0.0.1]:1", ())
    elsewhere = failure_of(lambda: inner([3], 1))
    error = build_error({0: lost, 1: failure_of(inner, [2], 1), 2: elsewhere}, {}, record=None)
    assert str(error) == golden(1)
    first, second = error.__notes__
    assert first.startswith("rank 2 failed otherwise:\n")
    assert golden(2) in first
    assert second == golden(3)


def test_another_cause_comes_first_and_frames_of_torch_are_hidden() -> None:
    raised = failure_of(inner, [2], 1)
    of_torch = raised.frames[-1]._replace(file="/x/site-packages/torch/distributed/distributed_c10d.py")
    failure = raised._replace(frames=(*raised.frames, of_torch))
    error = build_error({1: failure}, {}, record=None, cause="ranks do not agree")
    assert isinstance(error, ValueError)
    assert str(error) == golden(1)
    shown = pytest.ExceptionInfo.from_exception(error).traceback.filter(pytest.ExceptionInfo.from_exception(error))
    assert [one.name for one in shown] == [one.function for one in raised.frames if not one.hidden]


def test_where_all_have_lost_a_peer_that_is_what_is_told() -> None:
    lost = Failure("builtins", "RuntimeError", "Connection closed by peer", ())
    assert str(build_error({0: lost, 2: lost}, {}, record=None)) == golden(1)


def test_failures_at_the_same_line_are_told_in_a_line_each() -> None:
    failures = {0: failure_of(outer, 1), 1: failure_of(inner, [2], 1), 2: failure_of(inner, [3], 1)}
    first, second, _ = build_error(failures, {}, record=Path("runs/x")).__notes__
    assert first.startswith("rank 1 failed otherwise:\n")
    assert second == golden(1)


def test_a_message_that_begins_with_an_empty_line_follows_the_rank() -> None:
    assert str(rebuild_error(Failure("builtins", "ValueError", "\nNot equal", ()), {}, header="rank 1: ")) == golden(1)
