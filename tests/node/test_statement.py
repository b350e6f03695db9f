"""Whatever arrives at an agent's note socket, the agent lives, and passes on only what the lab can take."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lab.diagnosis.facts import RankFacts, RunFacts
from lab.node.channels import InputChannel
from lab.node.messages import wire
from lab.node.messages.agent import Claim, Config, Imported, Note, Raised
from lab.node.noderun import NodeRun
from lab.node.rank import note
from lab.node.run_folders import open_kept_folders
from lab.node.statement import DEEPEST, SOCKET_VARIABLE, problem_with, read_statement
from lab.record.events import event_line, read_event
from tests.golden import golden
from tests.short import SHORT

HUGE = 10**400
AT_ONCE = 8 if settings.default.max_examples < 100 else 20
"""Datagrams of an example: 10,000 in the long run."""


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.sampled_from([HUGE, -HUGE, math.inf, math.nan, "\udcff", "\x1b]52;c;eA==\x07", "1e999", nested(150), {}, []]),
)
anything = st.recursive(odd, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
kinds = st.sampled_from(["note", "raised", "imported", "exited", "claim", "stop", "", "__init__"])
fields = st.sampled_from(["is", "rank", "time", "name", "value", "error", "traceback", "names", "node", "run", "code"])
WHOLE = {"rank": 0, "time": 1.0, "name": "n", "value": 1, "error": "e", "traceback": "t", "names": ["torch"]}


@st.composite
def datagrams(draw: st.DrawFn) -> bytes:
    """A statement with wrong fields, without some, cut short, or nothing of the kind."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.binary(max_size=200))
    data = {"is": draw(kinds), **WHOLE, **draw(st.dictionaries(fields, anything, max_size=3))}
    for name in draw(st.lists(fields, max_size=2)):
        data.pop(name, None)
    line = json.dumps(data).encode()
    return line if draw(st.integers(0, 4)) else line[: draw(st.integers(0, len(line)))]


class Agent:
    """A run on a node whose worker says what it is told to say."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.root = tempfile.mkdtemp(prefix="lab-", dir=SHORT)
        config = Config("node0", self.root, container=False, import_root="")
        client: Any = SimpleNamespace(send=self.sent.append, congested=False)
        self.run = NodeRun(Claim("r", "me", 60.0, os.getuid(), os.getgid()), config, client, open_kept_folders(config))
        self.worker, notes = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        notes.setblocking(False)
        self.run.workers.append(FakeWorker(notes))  # type: ignore[arg-type]

    def take(self, datagram: bytes) -> None:
        self.worker.send(datagram)
        self.run.pass_on({self.run.workers[0].notes.fileno()})

    def close(self) -> None:
        self.worker.close()
        self.run.workers[0].notes.close()
        self.run.workers.clear()
        self.run.clean()
        shutil.rmtree(self.root)


class FakeWorker:
    def __init__(self, notes: socket.socket) -> None:
        self.notes = notes

    rank = 0
    is_running = True
    ends: dict[str, int] = {}  # noqa: RUF012
    attempt = ""
    raised: Any = None
    input_channel = InputChannel({})
    streams: dict[int, int] = {}  # noqa: RUF012


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    agent = Agent()
    yield agent
    agent.close()


@pytest.mark.timeout(1800)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(datagrams(), min_size=AT_ONCE, max_size=AT_ONCE + 2))
def test_no_datagram_harms_an_agent_or_what_the_lab_makes_of_it(agent: Agent, sent: list[bytes]) -> None:
    for datagram in sent:
        agent.take(datagram)
    facts = RunFacts(ranks=[RankFacts(rank=0)])
    for message in agent.sent:
        told = wire.decode_message(wire.encode_message(message))
        assert isinstance(told, Note)
        assert read_event(json.loads(event_line(told))) == told
        facts.add(told)
    json.dumps(facts.ranks[0].notes, indent=2, allow_nan=False)
    agent.sent.clear()


@pytest.mark.parametrize(
    "data",
    [
        {"is": "note"},
        {"is": "note", "rank": 0},
        {"is": "note", "rank": 0, "time": 1.0, "name": ["a", "list"]},
        {"is": "note", "rank": 0, "time": 1.0, "name": nested(900)},
        {"is": "note", "rank": 0, "time": 1.0, "name": "deep", "value": nested(900)},
        {"is": "note", "rank": 0, "time": 1.0, "name": "nan", "value": [math.nan]},
        {"is": "note", "rank": 0, "time": 1.0, "name": "inf", "value": {"a": -math.inf}},
        {"is": "note", "rank": 0, "time": 1.0, "name": "huge", "value": HUGE},
        {"is": "note", "rank": 0, "time": HUGE, "name": "late", "value": 1},
        {"is": "note", "rank": 0, "time": 1e300, "name": "late", "value": 1},
        {"is": "note", "rank": True, "time": 1.0, "name": "who"},
        {"is": "raised", "rank": 0, "time": "now", "error": "e", "traceback": "t"},
        {"is": "raised", "rank": 0, "time": 1.0, "error": ["e"], "traceback": "t"},
        {"is": "imported", "rank": 0, "names": [["torch"]]},
        {"is": "exited", "rank": 0, "time": 1.0},
        {"is": "finished", "run": "r"},
    ],
    ids=lambda data: json.dumps(data)[:60],
)
def test_what_no_worker_of_the_lab_would_say_is_not_heard(data: object) -> None:
    assert read_statement(json.dumps(data).encode()) is None


def test_a_number_that_json_cannot_say_is_not_heard() -> None:
    line = b'{"is":"note","rank":0,"time":1,"name":"n","value":1e999}'
    assert read_statement(line) is None
    assert read_statement(line.replace(b"1e999", b"1e99")) == Note(0, 1, name="n", value=1e99)


@pytest.mark.parametrize(
    "message",
    [
        Note(0, 1.0, name="n", value=nested(DEEPEST)),
        Raised(0, 2.0, error="E: \udcff", traceback="t"),
        Imported(1, 3.0, names=("torch._dynamo",)),
    ],
)
def test_what_a_worker_says_is_heard(message: Any) -> None:
    assert read_statement(wire.encode_message(message)) == message


@given(anything)
@example(nested(DEEPEST))
@example(nested(DEEPEST + 1))
@example([{"a": math.inf}])
def test_a_value_that_passes_can_be_written_and_read(value: Any) -> None:
    if not problem_with(value):
        assert json.loads(json.dumps(value, indent=2, allow_nan=False)) == value


def test_a_script_that_notes_what_cannot_be_noted_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    with pytest.raises(ValueError, match=golden(1)):
        note.note("deep", nested(DEEPEST + 1))
    with pytest.raises(ValueError, match=golden(2)):
        note.note("big", HUGE)
