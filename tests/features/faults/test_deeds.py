"""What an agent does when the lab asks for a deed: in its own process or apart, and every end is an answer."""

from __future__ import annotations

import os
import selectors
import sys
import time
import types
from typing import Any

import pytest

from lab.features.faults import on_node
from lab.features.faults.on_node import actions
from lab.features.faults.on_node.actions import Actions
from lab.node.messages.agent import ActionRequest, ActionResult
from tests.golden import golden


class Listener:
    """The other end of an agent's connection."""

    def __init__(self) -> None:
        self.heard: list[ActionResult] = []

    def send(self, message: ActionResult) -> None:
        self.heard.append(message)


def deed(monkeypatch: pytest.MonkeyPatch, *, apart: bool = False, **functions: object) -> None:
    """Have agents know the deed `test`."""
    module = types.ModuleType("lab.features.faults.on_node.test_deed")
    module.__dict__.update({f"{name}_test": function for name, function in functions.items()})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(on_node.ACTIONS, "test", "test_deed")
    monkeypatch.setattr(on_node, "SLOW", ("test",) if apart else ())


def answers(*asked: ActionRequest) -> list[ActionResult]:
    client = Listener()
    agent: Any = types.SimpleNamespace(connections=[client], run=None)
    mine = Actions(agent)
    for one in asked:
        mine.handle(client, one)  # type: ignore[arg-type]
    answered(mine, client, len(asked))
    assert mine.pids == set()
    return client.heard


def answered(mine: Actions, client: Listener, count: int) -> None:
    """Serve as an agent does, until so many answers were heard."""
    end = time.monotonic() + 20
    while len(client.heard) < count and time.monotonic() < end:
        with selectors.PollSelector() as selector:
            mine.register(selector)
            mine.pass_on({key.fd for key, _ in selector.select(1)})


def fails(context: object, said: dict[str, object]) -> dict[str, object]:
    raise ValueError("no such interface")


@pytest.mark.parametrize("apart", [False, True])
def test_a_deed_is_done_undone_and_looked_at(monkeypatch: pytest.MonkeyPatch, *, apart: bool) -> None:
    def tell(what: str) -> object:
        return lambda context, said: {"what": what, **said, "here": os.getpid()}

    deed(monkeypatch, apart=apart, apply=tell("done"), undo=tell("undone"), inspect=tell("seen"))
    heard = answers(
        ActionRequest("1", "faults.apply_test", {"a": 1}),
        ActionRequest("2", "faults.undo_test", {}),
        ActionRequest("3", "faults.inspect_test", {}),
    )
    heard.sort(key=lambda done: done.id)
    assert [(done.id, done.facts["what"], done.error) for done in heard] == [
        ("1", "done", ""),
        ("2", "undone", ""),
        ("3", "seen", ""),
    ]
    assert heard[0].facts["a"] == 1
    assert (heard[0].facts["here"] == os.getpid()) is not apart


@pytest.mark.parametrize("apart", [False, True])
def test_what_cannot_be_done_is_answered_with_a_sentence(monkeypatch: pytest.MonkeyPatch, *, apart: bool) -> None:
    deed(monkeypatch, apart=apart, apply=fails, undo=lambda context, said: said["missing"])
    asked = (
        ActionRequest("1", "faults.apply_test", {}),
        ActionRequest("2", "faults.undo_test", {}),
        ActionRequest("3", "faults.apply_fly", {}),
    )
    assert sorted(answers(*asked), key=lambda done: done.id) == [
        ActionResult("1", {}, "no such interface"),
        ActionResult("2", {}, "KeyError: 'missing'"),
        ActionResult("3", {}, golden(1)),
    ]


def test_a_process_that_is_killed_is_answered_for(monkeypatch: pytest.MonkeyPatch) -> None:
    deed(monkeypatch, apart=True, apply=lambda context, said: os.kill(os.getpid(), 9))
    (done,) = answers(ActionRequest("1", "faults.apply_test", {}))
    assert golden(1) in done.error


def test_a_process_that_takes_too_long_is_killed_and_answered_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "DEADLINE_S", 1)
    deed(monkeypatch, apart=True, apply=lambda context, said: time.sleep(60))
    (done,) = answers(ActionRequest("1", "faults.apply_test", {}))
    assert golden(1) in done.error
