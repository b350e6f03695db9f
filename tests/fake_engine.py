"""An engine without nodes: agents are scripts in this process, at the other end of socket pairs.

What an agent does in a run is told by `acts`: for each rank the messages that follow `go`, in order. `END` closes the
channel, as a node that dies does. A rank whose acts hold no exit runs until it is stopped.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lab.engine.doctor import Check, Wanted
from lab.engine.packages import Prepared
from lab.engine.protocol import Announce, Channel, NodeState, Removed, Request, Throttle, Traits, Trouble
from lab.errors import ClusterError, EngineUnavailable, LabError, NodeLost
from lab.node.messages import agent as messages
from lab.node.messages import wire
from lab.node.messages.agent import ActionRequest, ActionResult, AskTime, ClockReading, Reached
from lab.node.recorder.journal import clock_id
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node, Shape
from lab.plan.limits import Machine

ANY_RANK = -9
"""Stands for the rank whose act it is."""


class End:
    """The node dies."""


END = End()
Act = Any
"""A message of an agent, or `END`; a run, time or rank that it does not name is filled in."""


def prints(text: str, stream: int = 1) -> Act:
    return messages.Output("", ANY_RANK, stream, 0.0, text.encode())


def notes(name: str, value: Any) -> Act:
    return messages.Note(ANY_RANK, 0.0, name=name, value=value)


def exits(code: int | None = 0, *, rank: int = ANY_RANK, **more: Any) -> Act:
    return messages.Exited(rank, 0.0, code=code, **more)


class FakeAgent:
    """Answers the messages of one node.

    Args:
        node: its name.
        acts: what each rank does after `go`.
        answers: for a kind of message, the messages that take the place of the usual answer.
    """

    ahead_s = 0.0
    """How far the clocks of all nodes are ahead."""

    def __init__(self, node: str, acts: Mapping[int, Sequence[Act]], answers: Mapping[str, Sequence[Act]]) -> None:
        self.node = node
        self.acts = acts
        self.answers = answers
        self.heard: list[Any] = []
        self.running: set[int] = set()
        self.run = ""
        self.triggers: Sequence[Mapping[str, Any]] = ()

    @property
    def operations(self) -> list[str]:
        return [wire.kind_of(message) for message in self.heard]

    def answer(self, message: Any) -> list[Act]:
        self.heard.append(message)
        self.run = getattr(message, "run", self.run)
        usual = self._usual(message)
        return [self._whole(answer) for answer in self.answers.get(wire.kind_of(message), usual)]

    def _whole(self, answer: Act) -> Act:
        if answer is END:
            return END
        known = {"run": self.run, "time": time.time()}
        return answer._replace(**{name: known[name] for name in known if not getattr(answer, name, True)})

    def _usual(self, message: Any) -> list[Act]:
        if isinstance(message, messages.Hello):
            return [messages.Ready(self.node, torch="")]
        if isinstance(message, messages.Claim):
            return [messages.Claimed("", 0.0, clock_id())]
        if isinstance(message, AskTime):
            return [ClockReading("", message.asked, time.time() + self.ahead_s, time.monotonic() + self.ahead_s)]
        if isinstance(message, messages.Prepare):
            self.running = {worker.rank for worker in message.workers}
            self.triggers = message.triggers
            return [messages.Prepared("")]
        if isinstance(message, ActionRequest):
            return [ActionResult(message.id, {"in_force": True})]
        if isinstance(message, messages.Go):
            return self._act()
        if isinstance(message, messages.Stacks):
            texts = {rank: f'  File "/x/run/work/s.py", line {rank + 1} in f\n' for rank in sorted(self.running)}
            return [messages.Stack(rank, 0.0, self.node, text=text) for rank, text in texts.items()]
        if isinstance(message, messages.Stop):
            killed = [exits(None, signal="SIGKILL", rank=rank, stopped=True) for rank in sorted(self.running)]
            self.running = set()
            return killed
        if isinstance(message, messages.Check):
            return [exits(0, rank=-1)]
        return [messages.Finished("")] if isinstance(message, messages.Finish) else []

    def _act(self) -> list[Act]:
        answers: list[Act] = [messages.Started(rank, 0.0, self.node, pid=1000 + rank) for rank in sorted(self.running)]
        for rank in sorted(self.running):
            acts = self.acts.get(rank, [exits(0)])
            acts = [act._replace(rank=rank) if getattr(act, "rank", 0) == ANY_RANK else act for act in acts]
            answers += [answer for act in acts for answer in (*self._holds(act), act)]
        self.running -= {answer.rank for answer in answers if isinstance(answer, messages.Exited)}
        return answers

    def _holds(self, act: Act) -> list[Act]:
        """A rank that notes something is held for faults that wait for that; here it goes on without being let go."""
        if not isinstance(act, messages.Note):
            return []
        points = [one for one in self.triggers if one.get("note") == act.name and one.get("rank") in (None, act.rank)]
        reached = [
            Reached(act.rank, 0.0, hold=hold, trigger=one["trigger"], heals=one["heals"])
            for hold, one in enumerate(points)
        ]
        return [one._replace(value=act.value, node=self.node) for one in reached]


class FakeChannel:
    """What is sent is answered at once; the answers wait in a socket."""

    def __init__(self, node: Node, agent: FakeAgent) -> None:
        self.node = node
        self.agent = agent
        self.closed = False
        self._mine, self._theirs = socket.socketpair()
        self._mine.setblocking(False)
        for end in (self._mine, self._theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self._reader = wire.LineReader()

    def fileno(self) -> int:
        return self._mine.fileno()

    def send(self, data: bytes) -> None:
        for message in self._reader.feed(data):
            if self._theirs.fileno() < 0:
                raise BrokenPipeError("the node is dead")
            for answer in self.agent.answer(message):
                if answer is END:
                    self._theirs.close()
                    return
                self._theirs.sendall(wire.encode_message(answer))

    def receive(self) -> bytes | None:
        try:
            return self._mine.recv(1 << 18)
        except BlockingIOError:
            return None

    def close(self) -> None:
        self.closed = True
        self._mine.close()
        self._theirs.close()


class FakeEngine:
    """Clusters in a dictionary.

    Args:
        acts: what each rank does in a run.
        answers: by node name, what its agent says instead of the usual, by operation.
        states: what became of a node whose channel closed; an error is raised.
    """

    name = "fake"
    traits = Traits(isolates=True, containers=True)

    def __init__(
        self,
        acts: Mapping[int, Sequence[Act]] | None = None,
        answers: Mapping[str, Mapping[str, Sequence[Act]]] | None = None,
        states: Mapping[str, NodeState | LabError] | None = None,
    ) -> None:
        self.acts = dict(acts or {})
        self.answers = dict(answers or {})
        self.states = dict(states or {})
        self.troubles: dict[str, Trouble] = {}
        self.clusters: dict[str, ClusterInfo] = {}
        self.remains: set[str] = set()
        """Names of clusters of which something is there, but no node."""
        self.channels: list[FakeChannel] = []
        self.agents: dict[str, FakeAgent] = {}
        self.packages = {"torch": "2.13.0", "numpy": "2.3.0"}
        """What the nodes have: versions by name."""
        self.calls: list[str] = []
        self.failure: Callable[[str], None] = lambda call: None
        """Called with the name of every call; may raise."""

    def _called(self, call: str) -> None:
        self.calls.append(call)
        self.failure(call)

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        self._called("find")
        return [info for name, info in sorted(self.clusters.items()) if cluster in (None, name)]

    def find_quietly(self) -> list[ClusterInfo]:
        """The clusters, without a call."""
        return [*self.clusters.values()]

    def nodeless(self) -> list[str]:
        return sorted(self.remains)

    def requests(self, cluster: str, shape: Shape, *, run: str | None) -> list[Request]:
        return [Request(what=f"cluster {cluster}", body={"shape": shape.to_json(), "run": run})]

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        self._called("create")
        if cluster in self.clusters:
            raise ClusterError(f"{cluster} exists")
        announce(f"starting {shape.nodes} nodes")
        nodes = tuple(
            Node(name=f"node{rank}", node_rank=rank, handle=f"{cluster}/node{rank}", address=f"10.0.0.{rank + 1}")
            for rank in range(shape.nodes)
        )
        info = ClusterInfo(name=cluster, engine=self.name, shape=shape, nodes=nodes, owner="me@here", run=run)
        self.clusters[cluster] = info
        return info

    def connect(self, cluster: ClusterInfo, nodes: Sequence[Node]) -> list[Channel]:
        self._called("connect")
        for node in nodes:
            if node.state != "running":
                raise NodeLost(f"{node.name} cannot be reached")
        agents = {node.name: FakeAgent(node.name, self.acts, self.answers.get(node.name, {})) for node in nodes}
        channels = [FakeChannel(node, agents[node.name]) for node in nodes]
        self.agents, self.channels = agents, channels  # other threads connect to clusters of their own
        return list(channels)

    def remove(self, cluster: str | None, *, settle: bool = False) -> Removed:
        self._called("remove")
        gone = [info for name, info in self.clusters.items() if cluster in (None, name)]
        for info in gone:
            del self.clusters[info.name]
        self.remains -= {name for name in self.remains if cluster in (None, name)}
        return Removed(clusters=tuple(info.name for info in gone), nodes=sum(len(info.nodes) for info in gone))

    def node_state(self, node: Node) -> NodeState:
        self._called("node_state")
        state = self.states.get(node.name, NodeState(running=False, exit_code=137))
        if isinstance(state, EngineUnavailable):
            raise state
        assert isinstance(state, NodeState)
        return state

    def trouble(self, channel: Channel) -> Trouble | None:
        return self.troubles.get(channel.node.name)

    def machine(self) -> Machine:
        return Machine(cores=4, memory_bytes=16 << 30)

    def memory_bytes(self, node: Node) -> int | None:
        return None

    def kill(self, node: Node) -> None:
        self._called("kill")

    def stop(self, nodes: Sequence[Node]) -> None:
        self._called("stop")
        self._be(STOPPED, nodes)

    def start(self, cluster: ClusterInfo, nodes: Sequence[Node], *, announce: Announce) -> None:
        self._called("start")
        announce(f"starting {len(nodes)} nodes again")
        self._be(RUNNING, nodes)

    def _be(self, state: str, nodes: Sequence[Node]) -> None:
        handles = {node.handle for node in nodes}
        for name, info in self.clusters.items():
            all_nodes = (replace(one, state=state) if one.handle in handles else one for one in info.nodes)
            self.clusters[name] = replace(info, nodes=tuple(all_nodes))

    def pause(self, node: Node) -> None:
        self._called("pause")

    def resume(self, node: Node) -> None:
        self._called("resume")

    def paused(self, node: Node) -> bool:
        return False

    def limit(self, node: Node, cpus: float | None, memory_bytes: int | None) -> None:
        self._called("limit")

    def throttle(self, node: Node) -> Throttle:
        return Throttle(4, 16 << 30)

    def execute(self, cluster: ClusterInfo, node: Node, argv: Sequence[str], *, tty: bool) -> int:
        self._called("execute")
        return 0

    def prepare(
        self, image: str | None, requirements: Sequence[str], *, announce: Announce, again: bool = False
    ) -> str:
        self._called("prepare")
        return f"{image} with {' '.join(requirements)}"

    def prepared(self) -> list[Prepared]:
        return []

    def discard(self, prepared: Prepared) -> str:
        return ""

    def name_of(self, image: str | None, requirements: Sequence[str]) -> str:
        return f"{image} with {' '.join(requirements)}"

    def find_missing(self, cluster: ClusterInfo, requirements: Sequence[str]) -> tuple[str, ...]:
        self._called("find_missing")
        from tests.features.packages.made import python_with  # tests of the kernel run without features

        target = python_with(self.packages, f"cluster {cluster.name}")
        return tuple(one for one in requirements if not target.meets(one))

    def read_files(self, node: Node, path: str) -> Iterator[bytes]:
        self._called("read_files")
        raise ClusterError(f"cannot read {path} on {node.name}")

    def write_files(self, node: Node, path: str, archive: Iterator[bytes]) -> None:
        self._called("write_files")

    def examine(self, wanted: Wanted) -> list[Check]:
        return [Check(level="ok", what="engine", result="fake")]
