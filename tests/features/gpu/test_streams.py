"""Calls that a stream ends are seen by its events; the events here are made up, since no test has a GPU."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from lab.features.gpu import on_node as streams
from lab.features.gpu.on_node import Watcher, start_time
from lab.node.recorder.journal import journal
from tests.late import python_group, torch


class Event:
    """One that its stream comes to when it is told."""

    made: list[Event] = []  # noqa: RUF012 - of the test that runs

    def __init__(self, enable_timing: bool = True) -> None:
        self.passed = False
        self.error: Exception | None = None
        Event.made.append(self)

    def record(self, stream: object) -> None:
        """Nothing is given to a stream."""

    def query(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.passed

    def elapsed_time(self, later: Event) -> float:
        return 2.5 * (Event.made.index(later) - Event.made.index(self))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Watcher:
    Event.made.clear()
    watcher = Watcher()
    monkeypatch.setattr(streams, "watcher", watcher)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", lambda _: threading.RLock())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return watcher


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    monkeypatch.setattr(journal, "add", lambda kind, **facts: said.append({"k": kind, **facts}))
    return said


def tensor() -> Any:
    """What the recorder asks of a tensor on a GPU; its values would have to be waited for."""
    shape = {"dtype": torch.float32, "shape": (2,), "layout": torch.strided}
    device = torch.device("cuda", 0)
    return SimpleNamespace(**shape, is_cuda=True, is_cpu=False, device=device, numel=lambda: 2, element_size=lambda: 4)


def test_actions_follow_their_events_whichever_stream_is_the_first() -> None:
    watcher, done, failed = Watcher(), list[str](), list[Exception]()
    first, second = Event(), Event()
    came = threading.Event()
    watcher.when_passed(first, lambda: (done.append("first"), came.set()), failed.append)
    watcher.when_passed(second, lambda: done.append("second"), failed.append)

    second.passed = True
    watcher.finish()
    assert done == ["second"]
    first.passed = True
    assert came.wait(60)
    assert done == ["second", "first"]


def test_events_of_a_failed_device_fail_and_later_ones_are_still_watched() -> None:
    watcher, failed, came = Watcher(), list[Exception](), threading.Event()
    bad, good = Event(), Event()
    bad.error = RuntimeError("CUDA error: device-side assert triggered")
    watcher.when_passed(bad, lambda: None, failed.append)
    good.passed = True
    watcher.when_passed(good, came.set, failed.append)

    assert came.wait(60)
    watcher.finish()
    assert failed == [bad.error]


def test_a_call_whose_device_fails_ends_with_that_error(gpu: Watcher, lines: list[dict[str, Any]]) -> None:
    call = python_group.Call({"op": "all_reduce", "g": "0"}, [tensor()], None)
    call.finish()
    Event.made[-1].error = RuntimeError("CUDA error: device-side assert triggered\nmore")
    gpu.finish()

    assert [(line["k"], line.get("err")) for line in lines] == [
        ("begin", None),
        ("end", "CUDA error: device-side assert triggered"),
    ]
    assert "gpu" not in lines[1]


def test_a_call_that_a_graph_captures_has_no_time(gpu: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)

    assert start_time([tensor()]) is None
    assert not Event.made


def test_tensors_of_the_cpu_are_on_no_stream() -> None:
    assert start_time([torch.ones(1)]) is None


def test_a_call_on_a_gpu_ends_when_its_stream_does_and_nobody_reads_its_values(
    gpu: Watcher, lines: list[dict[str, Any]]
) -> None:
    call = python_group.Call({"op": "all_reduce", "g": "0"}, [tensor()], None)
    call.finish()
    assert [line["k"] for line in lines] == ["begin"]

    Event.made[-1].passed = True
    gpu.finish()

    begin, end = lines
    assert (end["k"], end["gpu"]) == ("end", 2_500_000)
    assert not {"iv", "is", "ov", "os"} & {*begin, *end}


def test_a_call_of_the_cpu_ends_at_once_with_its_values(lines: list[dict[str, Any]]) -> None:
    python_group.Call({"op": "all_reduce", "g": "0"}, [torch.ones(2)], None).finish()

    assert [line["k"] for line in lines] == ["begin", "end"]
    assert "gpu" not in lines[1]
