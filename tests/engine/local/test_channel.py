"""The stream to a local agent, where that takes nobody in."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.engine import agent_holder as channel
from lab.engine.agent_holder import LocalChannel, is_listening
from lab.plan.cluster import RUNNING, Node


def test_an_agent_that_takes_nobody_in_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "_ACCEPT_DEADLINE_S", 1)
    path = str(tmp_path / "s")
    node = Node(name="node0", node_rank=0, address="127.0.0.1", handle=path, state=RUNNING)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(path)
        assert not is_listening(path)
        listener.listen(0)
        stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)).connect(path)
        with pytest.raises(BlockingIOError):
            LocalChannel(node)
        assert is_listening(path)
