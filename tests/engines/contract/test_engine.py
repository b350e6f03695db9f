"""What every engine owes to the layers above it. A new engine is one more in tests/engines/contract/conftest.py."""

from __future__ import annotations

import json
import os
import select
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab import Cluster
from lab.engine.doctor import Wanted
from lab.engine.ownership import current_owner
from lab.engine.protocol import Channel, Engine, LimitControl, NodeState, Removed
from lab.engine.ready import HELLO, wait_ready
from lab.engine.select import select_engine
from lab.errors import ClusterError
from lab.features.copy.archive import pack_tar, unpack_tar
from lab.features.packages.stores import package_store
from lab.plan.cluster import ClusterInfo, Node, Shape
from tests.crash.conftest import wait_until
from tests.engines.conftest import NODES
from tests.golden import golden

MakeCluster = Callable[..., Cluster]
Create = Callable[..., ClusterInfo]


@pytest.fixture
def subject(engine: str) -> Engine:
    """The engine under test."""
    return select_engine(engine)[0]  # type: ignore[arg-type]


@pytest.fixture
def there(make_cluster: MakeCluster) -> ClusterInfo:
    """A cluster that tests only look at."""
    info = make_cluster(nodes=NODES).info()
    assert info is not None
    return info


@pytest.fixture
def create(subject: Engine) -> Iterator[Create]:
    """Makes clusters that a test may break; what is left of them is removed."""
    names = []

    def create(
        nodes: int, run: str | None = None, announce: Callable[[str], None] = lambda _: None, **shape: Any
    ) -> ClusterInfo:
        names.append(f"t-{uuid.uuid4().hex[:12]}")
        return subject.create(names[-1], Shape(nodes=nodes, **shape), run=run, announce=announce)

    yield create
    for name in names:
        subject.remove(name)
        assert subject.find(name) == []


def ended(channel: Channel) -> bool:
    """Waits until nobody is at the other end of a channel, and closes it."""
    try:
        while select.select([channel], [], [], 20.0)[0]:
            if channel.receive() == b"":
                return True
        return False
    finally:
        channel.close()


def settled(subject: Engine, node: Node) -> NodeState:
    """The state of a node that is ending, when it has ended."""
    wait_until(lambda: not subject.node_state(node).running, f"{node.name} to end", 20.0)
    return subject.node_state(node)


# -- making and finding


def test_requests_are_plain_data_the_same_again_and_make_nothing(subject: Engine):
    name = f"t-{uuid.uuid4().hex[:12]}"
    once, again = (subject.requests(name, Shape(nodes=2), run=None) for _ in range(2))
    assert once == again
    assert once
    assert json.loads(json.dumps([request._asdict() for request in once])) == [request._asdict() for request in once]
    assert all(name in request.what or name in json.dumps(request.body) for request in once)
    assert subject.find(name) == []


@pytest.mark.usefixtures("torch_stub")
def test_a_cluster_is_found_as_it_was_asked_for_through_stops_starts_and_kills_until_it_is_removed(
    subject: Engine, there: ClusterInfo, create: Create
):
    said: list[str] = []
    asked = {"nproc_per_node": 3, "env": {"A": "one two"}}
    made = create(nodes=2, run="20200101-x", announce=said.append, **asked)
    assert (made.engine, made.state, made.owner, made.run, made.stays) == (
        subject.name,
        "ready",
        current_owner(),
        "20200101-x",
        False,
    )
    assert [(node.name, node.node_rank, node.state) for node in made.nodes] == [
        ("node0", 0, "running"),
        ("node1", 1, "running"),
    ]
    assert len({node.address for node in made.nodes} | {node.handle for node in made.nodes}) == 4
    assert any("2 nodes" in text or "2 local nodes" in text for text in said)
    assert made.shape == Shape(nodes=2, **asked)
    assert subject.find(made.name) == [made]
    assert {there.name, made.name} <= {info.name for info in subject.find()}
    assert subject.find("t-never-made") == []

    check_stop_and_start(subject, made)
    check_kill(subject, made)

    removed = subject.remove(made.name, settle=True)
    assert (removed.clusters, removed.nodes) == ((made.name,), 2)
    state = settled(subject, made.nodes[0])
    assert (state.running, state.gone, state.sentence()) == (False, True, "was removed")
    assert subject.remove(made.name) == Removed()
    assert [info.name for info in subject.find(there.name)] == [there.name]


def check_stop_and_start(subject: Engine, made: ClusterInfo) -> None:
    """A stopped node stays so until it is started, and is then as it was made."""
    (channel,) = subject.connect(made, made.nodes[1:])
    subject.stop(made.nodes[1:])
    assert ended(channel)
    subject.stop(made.nodes[1:])  # it is already
    (found,) = subject.find(made.name)
    assert [node.state for node in found.nodes] == ["running", "stopped"]
    assert (found.intact, replace(found, run=None).stays, found.state) == (True, True, "partial")
    assert subject.node_state(made.nodes[1]).sentence() == "was killed (SIGKILL)"

    subject.start(found, found.nodes[1:], announce=lambda _: None)
    (again,) = subject.find(made.name)
    assert [replace(node, address="") for node in again.nodes] == [replace(node, address="") for node in made.nodes]
    assert replace(again, nodes=()) == replace(made, nodes=())
    assert len({node.address for node in again.nodes}) == 2  # a scheduler may give it another one
    channels = subject.connect(made, made.nodes)
    try:
        for each in channels:
            each.send(HELLO)
        assert wait_ready(channels, 60.0, lambda _: None) is None
    finally:
        for each in channels:
            each.close()


def check_kill(subject: Engine, made: ClusterInfo) -> None:
    """A killed node ends its channel, and is told from its peers."""
    (channel,) = subject.connect(made, made.nodes[1:])
    subject.kill(made.nodes[1])
    assert ended(channel)
    state = settled(subject, made.nodes[1])
    assert (state.running, state.gone, state.sentence()) == (False, False, "was killed (SIGKILL)")
    assert subject.node_state(made.nodes[0]).running
    (found,) = subject.find(made.name)
    assert (found.state, replace(found, run=None).stays) == ("partial", False)
    assert [node.state == "running" for node in found.nodes] == [True, False]


def test_a_cluster_whose_making_is_interrupted_leaves_nothing(subject: Engine):
    name = f"t-{uuid.uuid4().hex[:12]}"

    def interrupt(text: str) -> None:
        if "import" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        subject.create(name, Shape(nodes=2), run=None, announce=interrupt)
    assert subject.find(name) == []
    assert not subject.remove(name)


# -- using


def test_the_agent_of_every_node_answers_on_its_channel_again_and_again(subject: Engine, there: ClusterInfo):
    for _ in range(2):
        channels = subject.connect(there, there.nodes)
        try:
            assert [channel.node for channel in channels] == list(there.nodes)
            for channel in channels:
                channel.send(HELLO)
            said: list[str] = []
            assert wait_ready(channels, 60.0, said.append) is None
            assert said[-1].startswith(f"{NODES}/{NODES} nodes ready")
        finally:
            for channel in channels:
                channel.close()


def test_a_node_that_runs_says_so_and_what_memory_it_uses(subject: Engine, there: ClusterInfo):
    assert all(subject.node_state(node).running for node in there.nodes)
    used = subject.memory_bytes(there.nodes[0])
    assert used is None or used > 2**20


def test_a_node_stands_still_until_it_is_resumed_and_again_is_no_error(subject: Engine, there: ClusterInfo):
    node = there.nodes[0]
    try:
        for _ in range(2):
            subject.pause(node)
            assert subject.paused(node)
            assert subject.node_state(node).running
    finally:
        for _ in range(2):
            subject.resume(node)
    assert not subject.paused(node)
    (channel,) = subject.connect(there, [node])
    channel.send(HELLO)
    assert wait_ready([channel], 20.0, lambda _: None) is None
    channel.close()


def test_a_node_may_use_less_until_it_may_use_as_much_as_before_or_that_is_refused(subject: Engine, there: ClusterInfo):
    node = there.nodes[0]
    if "limits" in subject.traits.cannot:
        assert not isinstance(subject, LimitControl)
        return
    before = subject.throttle(node)
    subject.limit(node, 0.5, 512 << 20)
    assert subject.throttle(node) == (0.5, 512 << 20)
    subject.limit(node, before.cpus, before.memory_bytes)
    assert subject.throttle(node) == before


def test_a_command_runs_in_a_node_with_the_streams_and_the_exit_code_of_its_caller(
    subject: Engine, there: ClusterInfo, capfd: pytest.CaptureFixture[str]
):
    argv = ["sh", "-c", "echo out; echo err >&2; exit 7"]
    assert subject.execute(there, there.nodes[1], argv, tty=False) == 7
    said = capfd.readouterr()
    assert (said.out, said.err) == ("out\n", "err\n")


@pytest.mark.parametrize("size", [0, 3_000_000], ids=["nothing", "a file"])
def test_a_command_reads_a_file_that_its_caller_was_given_to_read(
    subject: Engine, there: ClusterInfo, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], size: int
):
    given = Path(os.devnull) if not size else tmp_path / "given"
    content = bytes(range(250)) * (size // 250)
    if size:
        given.write_bytes(content)
    with given.open("rb") as file, standard_input(file.fileno()):
        assert subject.execute(there, there.nodes[1], ["cat"], tty=False) == 0
    assert capfdbinary.readouterr().out == content


@contextmanager
def standard_input(descriptor: int) -> Iterator[None]:
    """Has this process read from a descriptor."""
    kept = os.dup(0)
    os.dup2(descriptor, 0)
    try:
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_a_command_that_does_not_exist_is_a_sentence(subject: Engine, there: ClusterInfo):
    with pytest.raises(ClusterError, match="no-such-command"):
        subject.execute(there, there.nodes[0], ["no-such-command"], tty=False)


# -- losing


@pytest.mark.usefixtures("torch_stub")
@pytest.mark.local_first
def test_a_killed_node_can_be_started_and_stopped_ones_are_removed_with_their_cluster(subject: Engine, create: Create):
    made = create(nodes=2)
    subject.kill(made.nodes[1])
    settled(subject, made.nodes[1])
    subject.start(made, made.nodes[1:], announce=lambda _: None)
    assert [node.state for node in subject.find(made.name)[0].nodes] == ["running", "running"]
    subject.stop(made.nodes)
    assert subject.find(made.name)[0].state == "dead"
    assert subject.remove(made.name).nodes == 2
    assert subject.find(made.name) == []


# -- saying


def test_a_check_that_is_not_well_says_what_to_do(subject: Engine):
    checks = subject.examine(Wanted(nodes=2))
    assert "engine" in {check.what for check in checks}
    for check in checks:
        assert check.level in ("ok", "warning", "failed")
        assert check.result
        assert check.fix or check.level == "ok", check


def test_what_was_copied_to_a_node_is_seen_by_all_and_comes_back(
    subject: Engine, there: ClusterInfo, tmp_path: Path
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("text")
    first, second, *_ = there.nodes
    subject.write_files(first, f"{there.shared}/new", pack_tar(tmp_path / "a", "new"))
    unpack_tar(subject.read_files(second, f"{there.shared}/new"), tmp_path / "back")
    assert (tmp_path / "back" / "b" / "c").read_text() == "text"


def test_what_cannot_be_copied_is_refused_in_a_sentence(subject: Engine, there: ClusterInfo, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    with pytest.raises(ClusterError, match=golden(1)):
        subject.read_files(there.nodes[0], "/none/here")
    with pytest.raises(ClusterError, match=golden(2)):
        subject.write_files(there.nodes[0], "/none/here/a", pack_tar(tmp_path / "a", "a"))


def test_the_python_of_the_nodes_says_what_it_has(subject: Engine, there: ClusterInfo) -> None:
    assert package_store(subject).find_missing(there, ["torch>=2", "labtestnone"]) == ("labtestnone",)
