"""What an agent does when the lab asks for a deed: in its own process or apart, and every end is an answer."""

from __future__ import annotations

import os
import selectors
import sys
import time
import types
from collections.abc import Callable, Iterator

import pytest

from lab.features.faults import on_node
from lab.features.faults.on_node import actions
from lab.features.faults.on_node.actions import Actions
from lab.node.messages.agent import Config, Do, Done, LookAt, Undo
from tests.golden import golden


class Listener:
    """The other end of an agent's connection."""

    def __init__(self) -> None:
        self.heard: list[Done] = []

    def send(self, message: Done) -> None:
        self.heard.append(message)


def deed(monkeypatch: pytest.MonkeyPatch, *, apart: bool = False, **functions: object) -> None:
    """Have agents know the deed `test`."""
    module = types.ModuleType("lab.features.faults.on_node.test_deed")
    module.__dict__.update({f"{name}_test": function for name, function in functions.items()})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(on_node.ACTIONS, "test", "test_deed")
    monkeypatch.setattr(on_node, "STAYING", ("test",) if apart else ())


def answers(*asked: Do | Undo | LookAt) -> list[Done]:
    client = Listener()
    mine = Actions(Config("node0", "/nowhere", container=False, import_root=""), [client], lambda: None)  # type: ignore[list-item]
    for one in asked:
        mine.take(client, one)  # type: ignore[arg-type]
    answered(mine, client, len(asked))
    for pid in mine.pids:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
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
def test_a_deed_is_done_undone_and_looked_at_in_the_order_of_the_requests(
    monkeypatch: pytest.MonkeyPatch, *, apart: bool
) -> None:
    def tell(what: str) -> object:
        return lambda context, said: {"what": what, "node": context.config.node, **said, "here": os.getpid()}

    deed(monkeypatch, apart=apart, apply=tell("done"), undo=tell("undone"), look=tell("seen"))
    heard = answers(Do("1", "faults.test", {"a": 1}, "r"), Undo("2", "faults.test", {}), LookAt("3", "faults.test", {}))
    assert [(done.id, done.found["what"], done.wrong, done.run) for done in heard] == [
        ("1", "done", "", "r"),
        ("2", "undone", "", ""),
        ("3", "seen", "", ""),
    ]
    assert heard[0].found["a"] == 1
    assert heard[0].found["node"] == "node0"
    assert (heard[0].found["here"] == os.getpid()) is not apart


@pytest.mark.parametrize("apart", [False, True])
def test_what_cannot_be_done_is_answered_with_a_sentence(monkeypatch: pytest.MonkeyPatch, *, apart: bool) -> None:
    deed(monkeypatch, apart=apart, apply=fails, undo=lambda context, said: said["missing"])
    assert answers(Do("1", "faults.test", {}), Undo("2", "faults.test", {}), Do("3", "faults.fly", {})) in (
        [
            Done("1", {}, "no such interface"),
            Done("2", {}, "KeyError: 'missing'"),
            Done("3", {}, golden(1)),
        ],
        [
            Done("3", {}, golden(1)),
            Done("1", {}, "no such interface"),
            Done("2", {}, "KeyError: 'missing'"),
        ],
    )


def test_a_process_that_is_killed_is_answered_for(monkeypatch: pytest.MonkeyPatch) -> None:
    deed(monkeypatch, apart=True, apply=lambda context, said: os.kill(os.getpid(), 9), undo=lambda context, said: None)
    assert answers(Do("1", "faults.test", {}), Undo("2", "faults.test", {})) == [
        Done("1", {}, golden(1)),
        Done("2", {}),
    ]


def test_a_process_that_takes_too_long_is_killed_and_answered_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "DEADLINE_S", 0.2)
    deed(monkeypatch, apart=True, apply=lambda context, said: time.sleep(60))
    assert answers(Do("1", "faults.test", {})) == [Done("1", {}, golden(1))]


LINKS = "test_links_deed"


def counts(context: object, said: dict[str, object]) -> dict[str, object]:
    sys.modules[f"lab.features.faults.on_node.{LINKS}"].__dict__["TIMES"] += 1
    return {"times": sys.modules[f"lab.features.faults.on_node.{LINKS}"].__dict__["TIMES"], "here": os.getpid()}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[Done]]]:
    """Has an agent do deeds of links, whose module counts how often it was called; takes requests, gives answers."""
    module = types.ModuleType(f"lab.features.faults.on_node.{LINKS}")
    module.__dict__.update(TIMES=0, apply_links=counts, undo_links=lambda context, said: os.kill(os.getpid(), 9))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(on_node.ACTIONS, "links", LINKS)
    client = Listener()
    mine = Actions(Config("node0", "/nowhere", container=False, import_root=""), [client], lambda: None)  # type: ignore[list-item]

    def serve(*asked: Do | Undo) -> list[Done]:
        client.heard.clear()
        for one in asked:
            mine.take(client, one)  # type: ignore[arg-type]
        answered(mine, client, len(asked))
        return list(client.heard)

    yield serve
    for pid in mine.pids:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_what_makes_links_is_lent_once_and_stays(served: Callable[..., list[Done]]) -> None:
    assert served(Do("1", "faults.links", {})) == [Done("1", {}, actions.LIBRARY_LACKING)]
    lent = served(Do("2", "faults.library", {"files": {}}), Do("3", "faults.links", {}), Do("4", "faults.links", {}))
    assert [(done.found.get("times"), done.wrong) for done in lent] == [(None, ""), (1, ""), (2, "")]
    assert lent[1].found["here"] == lent[2].found["here"] != os.getpid()


def test_what_makes_links_may_be_killed_and_is_there_again_as_if_it_were_new(
    served: Callable[..., list[Done]],
) -> None:
    served(Do("1", "faults.library", {"files": {}}), Do("2", "faults.links", {}))
    assert served(Undo("3", "faults.links", {}), Do("4", "faults.links", {})) == [
        Done("3", {}, golden(1)),
        Done("4", {}, actions.LIBRARY_LACKING),
    ]
    again = served(Do("5", "faults.library", {"files": {}}), Do("6", "faults.links", {}))
    assert again[1].found["times"] == 1
