"""An agent whose client fell silent: it ends the run by itself, and tells others who has the node until then."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from lab.engine.agent_holder import LocalChannel
from lab.engine.docker.engine import DockerEngine
from lab.engine.protocol import Channel
from lab.node.contents import FILE, Entry, new_digest, write_entries, write_header
from lab.node.messages import wire
from lab.node.messages.agent import (
    PROTOCOL,
    Busy,
    Claim,
    Claimed,
    Content,
    Finish,
    Finished,
    Folder,
    Go,
    Message,
    Output,
    Ping,
    Prepare,
    Refused,
    WorkerStart,
)
from lab.plan.cluster import Node
from tests.crash.conftest import DEADLINE_S, HOLD, Lab, wait_until
from tests.golden import golden

pytestmark = pytest.mark.half

Heard = TypeVar("Heard")
Talk = Callable[[], "Client"]


class Client:
    """Somebody who talks to an agent as `lab run` does."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.heard: list[Any] = []
        self._reader = wire.LineReader()
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel.fileno(), selectors.EVENT_READ)

    def say(self, message: Message) -> None:
        self.channel.send(wire.encode_message(message))

    def hear(self, kind: type[Heard], run: str | None = None, deadline_s: float = DEADLINE_S) -> Heard:
        """Wait for a message of a kind, about a run; every client of a container hears what is said to all."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            for message in self.heard:
                if isinstance(message, kind) and run in (None, getattr(message, "run", None)):
                    self.heard.remove(message)
                    return message
            if self._selector.select(0.1):
                self.heard += self._reader.feed(self.channel.receive() or b"")
        pytest.fail(f"no {kind} within {deadline_s} s, but {self.heard}")

    def claim(self, run: str, owner: str, lease_s: float) -> None:
        self.say(Claim(run, owner, lease_s, os.getuid(), os.getgid()))

    def start(self, run: str) -> None:
        """Ship and start a worker that holds on."""
        digest = new_digest(HOLD.encode()).hexdigest()
        self.say(Content(run, write_header(digest, len(HOLD)) + HOLD.encode(), last=True))
        self.say(Folder(run, "key", run, entries=write_entries([("hold.py", Entry(FILE, 0, digest))])))
        self.say(Prepare(run, (WorkerStart(0, 0, {"RANK": "0"}, ["hold.py"]),)))
        self.say(Go(run))
        self.hear(Output)


@pytest.fixture
def lab(shared_lab: Lab) -> Lab:
    """The command line on each engine, whose cluster of one node all tests use."""
    return shared_lab


@pytest.fixture
def talk(lab: Lab) -> Iterator[Talk]:
    """Opens another channel to the only node of a cluster."""
    assert lab("up", "--nodes", "1").code == 0
    node = Node(**lab.status()["nodes"][0])
    channels: list[Channel] = []

    def make() -> Client:
        if lab.engine == "local":
            channels.append(LocalChannel(node))
        else:
            channels.extend(DockerEngine().connect(SimpleNamespace(name=lab.name), [node]))  # type: ignore[arg-type]
        return Client(channels[-1])

    yield make
    for channel in channels:
        channel.close()


@pytest.mark.local_first
def test_a_run_whose_client_fell_silent_ends_with_its_lease(lab: Lab, talk: Talk):
    client = talk()
    client.claim("r", "me", lease_s=1.5)
    client.start("r")
    told = client.hear(Refused, "r")
    assert (told.what, told.reason) == ("run", golden(1))
    wait_until(lambda: not lab.workers(), "the agent to end the run")
    assert lab("run", lab.script("print('fine')", "fine.py")).code == 0


@pytest.mark.local_first
def test_a_client_that_is_heard_keeps_its_lease(lab: Lab, talk: Talk):
    client = talk()
    client.claim("r", "me", lease_s=2.5)
    client.start("r")
    end = time.monotonic() + 4

    def is_heard_beyond_the_lease() -> bool:
        client.say(Ping("r"))
        return time.monotonic() >= end

    wait_until(is_heard_beyond_the_lease, "the lease to have ended without a word")
    assert len(lab.workers()) == 1
    client.say(Finish("r"))
    client.hear(Finished)
    assert not lab.workers()


@pytest.mark.local_first
def test_somebody_else_is_told_who_has_the_node(lab: Lab, talk: Talk):
    first, second = talk(), talk()
    first.claim("r", "me", lease_s=30)
    first.hear(Claimed)
    second.claim("s", "eve", lease_s=30)
    busy = second.hear(Busy)
    assert (busy.holder, busy.owner) == ("r", "me")
    first.say(Finish("r"))
    first.hear(Finished)
    second.claim("s", "eve", lease_s=30)
    second.hear(Claimed, "s")
    second.say(Finish("s"))
    second.hear(Finished, "s")


@pytest.mark.local_first
def test_the_same_owner_takes_over(lab: Lab, talk: Talk):
    first, second = talk(), talk()
    first.claim("r", "me", lease_s=30)
    first.start("r")
    second.claim("s", "me", lease_s=30)
    second.hear(Claimed, "s")
    assert not lab.workers()
    assert first.hear(Refused, "r").reason == golden(1)
    second.say(Finish("s"))
    second.hear(Finished)


@pytest.mark.local_first
def test_nonsense_is_answered_and_harms_nobody(lab: Lab, talk: Talk):
    client = talk()
    for line in (b"", b"not json", b"[1, 2]", b'"x"', b"\xff\xfe", b"{}", b'{"is": 5}', b'{"is": "__init__"}'):
        client.channel.send(line + b"\n")
    for message in (b'{"is": "claim"}', b'{"is": "go"}', b'{"is": "stop", "run": "none", "hard": 1}'):
        client.channel.send(message + b"\n")
    client.say(Go("none"))
    client.claim("r", "me", lease_s=30)
    client.hear(Claimed)
    for line in (
        b'{"is": "content", "run": "r", "data": "%%%", "last": true}',
        b'{"is": "content", "run": "r", "data": -5, "last": true}',
        b'{"is": "prepare", "run": "r", "workers": 3}',
        b'{"is": "prepare", "run": "r", "workers": [{}]}',
        b'{"is": "check", "run": "r"}',
        b'{"is": "finished", "run": "r"}',
        wire.encode_message(Folder("r", "key", "t", entries="no entry")).strip(),
    ):
        client.channel.send(line + b"\n")
        client.hear(Refused, "r")
    client.say(Finish("r"))
    client.hear(Finished)
    assert lab("run", lab.script("print('fine')", "fine.py")).code == 0


@pytest.mark.local_first
def test_a_client_of_another_version_is_told_so_in_a_sentence(lab: Lab, talk: Talk):
    client = talk()
    client.channel.send(wire.encode_message(Claim("r", "me", 30, 0, 0)._replace(version=PROTOCOL + 1)))
    refused = client.hear(Refused, "r")
    assert golden(1, PROTOCOL + 1, PROTOCOL) in refused.reason
    assert "lab up" in refused.reason


@pytest.mark.long
@pytest.mark.local_first
def test_a_command_that_was_stopped_beyond_its_lease_says_so_as_soon_as_it_goes_on(lab: Lab, talk: Talk):
    run = lab.start("run", lab.script(HOLD, "hold.py"), "--timeout", "300s")
    run.wait_for("holding")
    run.send(signal.SIGSTOP)
    wait_until(lambda: not lab.workers(), "the agent to end the run", 120.0)
    run.send(signal.SIGCONT)
    ended = run.end(20.0)
    assert ended.code == 1
    assert golden(1) in ended.out


@pytest.mark.local_first
def test_a_command_whose_node_another_one_took_is_told_at_once(lab: Lab, tmp_path: Path):
    assert lab("up", "--nodes", "1").code == 0
    first = lab.start("run", lab.script(HOLD, "hold.py"))
    first.wait_for("holding")
    second = lab("run", lab.script("print('fine')", "fine.py"), XDG_STATE_HOME=str(tmp_path))
    assert second.code == 0, second.said
    ended = first.end(20.0)
    assert ended.code == 1
    assert golden(1) in ended.out
    assert golden(2) in ended.out
