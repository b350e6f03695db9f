"""An agent whose client fell silent: it ends the run by itself, and tells others who has the node until then."""

from __future__ import annotations

import base64
import io
import os
import selectors
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from lab.engine.docker.engine import DockerEngine
from lab.engine.local.channel import LocalChannel
from lab.engine.protocol import Channel
from lab.node import wire
from lab.plan.cluster import Node
from tests.crash.conftest import DEADLINE_S, HOLD, Lab, wait_until

Talk = Callable[[], "Client"]


class Client:
    """Somebody who talks to an agent as `lab run` does."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.heard: list[dict[str, Any]] = []
        self._reader = wire.LineReader()
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel.fileno(), selectors.EVENT_READ)

    def say(self, **message: Any) -> None:
        self.channel.send(wire.encode(message))

    def hear(self, kind: str, run: str | None = None, deadline_s: float = DEADLINE_S) -> dict[str, Any]:
        """Wait for a message of a kind, about a run; every client of a container hears what is said to all."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            for message in self.heard:
                if message["ev"] == kind and run in (None, message.get("run")):
                    self.heard.remove(message)
                    return message
            if self._selector.select(0.1):
                self.heard += self._reader.feed(self.channel.receive() or b"")
        pytest.fail(f"no {kind} within {deadline_s} s, but {self.heard}")

    def claim(self, run: str, owner: str, lease_s: float) -> None:
        self.say(op="claim", run=run, owner=owner, lease_s=lease_s, uid=os.getuid(), gid=os.getgid(), cold=False)

    def start(self, run: str) -> None:
        """Ship and start a worker that holds on."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            entry = tarfile.TarInfo("hold.py")
            entry.size = len(HOLD)
            archive.addfile(entry, io.BytesIO(HOLD.encode()))
        data = base64.b64encode(zlib.compress(buffer.getvalue())).decode()
        self.say(op="files", run=run, data=data, last=True)
        worker = {"rank": 0, "local_rank": 0, "env": {"RANK": "0"}, "argv": ["hold.py"]}
        self.say(op="prepare", run=run, workers=[worker])
        self.say(op="go", run=run)
        self.hear("output")


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


def test_a_run_whose_client_fell_silent_ends_with_its_lease(lab: Lab, talk: Talk):
    client = talk()
    client.claim("r", "me", lease_s=1.5)
    client.start("r")
    wait_until(lambda: not lab.workers(), "the agent to end the run")
    assert lab("run", lab.script("print('fine')", "fine.py")).code == 0


def test_a_client_that_is_heard_keeps_its_lease(lab: Lab, talk: Talk):
    client = talk()
    client.claim("r", "me", lease_s=2.5)
    client.start("r")
    end = time.monotonic() + 4
    while time.monotonic() < end:
        client.say(op="ping", run="r")
        time.sleep(0.1)
    assert len(lab.workers()) == 1
    client.say(op="finish", run="r")
    assert client.hear("finished")["left"] is not None
    assert not lab.workers()


def test_somebody_else_is_told_who_has_the_node(lab: Lab, talk: Talk):
    first, second = talk(), talk()
    first.claim("r", "me", lease_s=30)
    first.hear("claimed")
    second.claim("s", "eve", lease_s=30)
    busy = second.hear("busy")
    assert (busy["run"], busy["owner"]) == ("r", "me")
    first.say(op="finish", run="r")
    first.hear("finished")
    second.claim("s", "eve", lease_s=30)
    second.hear("claimed", "s")
    second.say(op="finish", run="s")
    second.hear("finished", "s")


def test_the_same_owner_takes_over(lab: Lab, talk: Talk):
    first, second = talk(), talk()
    first.claim("r", "me", lease_s=30)
    first.start("r")
    second.claim("s", "me", lease_s=30)
    second.hear("claimed", "s")
    assert not lab.workers()
    second.say(op="finish", run="s")
    second.hear("finished")


def test_nonsense_is_answered_and_harms_nobody(lab: Lab, talk: Talk):
    client = talk()
    for line in (b"", b"not json", b"[1, 2]", b'"x"', b"\xff\xfe", b"{}", b'{"op": 5}', b'{"op": "__init__"}'):
        client.channel.send(line + b"\n")
    for message in ({"op": "claim"}, {"op": "files", "run": "none"}, {"op": "go", "run": "none"}, {"op": "stop"}):
        client.say(**message)
    client.claim("r", "me", lease_s=30)
    client.hear("claimed")
    for message in (
        {"op": "files", "run": "r", "data": "%%%", "last": True},
        {"op": "files", "run": "r", "data": 5, "last": True},
        {"op": "files", "run": "r", "data": base64.b64encode(b"not zlib").decode(), "last": True},
        {"op": "files", "run": "r", "data": base64.b64encode(zlib.compress(b"not tar")).decode(), "last": True},
        {"op": "prepare", "run": "r", "workers": 3},
        {"op": "prepare", "run": "r", "workers": [{}]},
        {"op": "check", "run": "r"},
    ):
        client.say(**message)
        client.hear("refused", "r")
    client.say(op="finish", run="r")
    client.hear("finished")
    assert lab("run", lab.script("print('fine')", "fine.py")).code == 0
