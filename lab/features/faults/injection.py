"""Faults injected into a cluster that stands, and taken back: each in the journal before, one after the other."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lab.engine.protocol import Engine, LimitControl, PauseControl, PowerControl, capable
from lab.errors import ClusterBusy, ClusterError, LabError, UsageError
from lab.features.faults.fault import parse_kind
from lab.features.faults.fault_journal import BY_HAND, HEALING, IN_FORCE, UNDONE, FaultJournal, Standing
from lab.features.faults.kind import FaultKind, ReadBack, fault_kinds, key_of
from lab.features.faults.on_node.agent_deeds import LIBRARY, LIBRARY_LACKING
from lab.features.faults.on_node.deeds import DEADLINE_S, Asked
from lab.node.messages import wire
from lab.node.messages.agent import Do, Done, LookAt, Undo
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node
from lab.run.conversation import Conversation
from lab.run.lock import nodes_lock
from lab.spec.reading import did_you_mean
from lab.words import listing

if TYPE_CHECKING:
    from lab.cluster import Cluster

ANSWER_S = DEADLINE_S + 5.0
"""An agent that has not answered by then does not."""
_PATIENCE_S = 90.0
"""Longer than starting a node takes."""
LIBRARY_PARTS = (
    *("common.py", "process.py", "statsd.py", "config/__init__.py", "netlink/*.py", "netlink/diag/__init__.py"),
    *("netlink/nfnetlink/*.py", "netlink/rtnl/__init__.py", "netlink/rtnl/tcmsg/*.py", "netns/__init__.py"),
    *("protocols/__init__.py", "requests/__init__.py", "requests/main.py"),
)
"""What agents need of pyroute2; not its own `__init__.py`, which imports all the rest: 0.3 s."""
_AGENT_ANSWERS = "disconnected"
"""The state of a node whose cable is out: its agent is reached over the engine."""


# -- requests to agents


class AgentLine:
    """What the thread of faults asks the agents of a run, with which only the thread of the run communicates.

    Args:
        agents: those of the run.
        wake: has the thread of the run call `pass_on` soon.
    """

    def __init__(self, agents: Conversation, wake: Callable[[], object]) -> None:
        self._agents = agents
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, Asked, Future[Done]]] = []
        self._asked: dict[str, tuple[str, Future[Done]]] = {}
        """By id: the node, and what becomes of it."""

    def ask(self, node: str, asked: Asked) -> Done | None:
        """Ask, in the thread of faults, and wait; None where the run does not have the node.

        Raises:
            ClusterError: there was no answer.
        """
        future: Future[Done] = Future()
        with self._lock:
            self._waiting.append((node, asked._replace(run=self._agents.run), future))
        self._wake()
        try:
            done = future.result(ANSWER_S)
        except NotInTime:
            raise _silent(node) from None
        return None if done.id != asked.id else done

    def pass_on(self) -> None:
        """Send what waits; answer for nodes that were lost."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for node, asked, future in waiting:
            self._asked[asked.id] = node, future
            self._agents.say(node, asked)
        for identity, (node, future) in list(self._asked.items()):
            if node not in self._agents.alive:
                del self._asked[identity]
                future.set_result(Done("", {}))

    def receive(self, done: Done) -> None:
        """An agent has answered."""
        _, future = self._asked.pop(done.id, ("", None))
        if future is not None:
            future.set_result(done)


def _ask_directly(engine: Engine, cluster: ClusterInfo, node: Node, asked: Asked) -> Done:
    """Ask an agent over a channel of its own, and wait.

    Raises:
        ClusterError: there was no answer.
        NodeLost: the node cannot be reached.
    """
    (channel,) = engine.connect(cluster, [node])
    reader, poll, until = wire.LineReader(), select.poll(), time.monotonic() + ANSWER_S
    try:
        with suppress(OSError):
            channel.send(wire.encode(asked))
            poll.register(channel.fileno(), select.POLLIN)
            while (left_s := until - time.monotonic()) > 0:
                poll.poll(left_s * 1000)
                data = channel.receive()
                if data == b"":
                    break
                for message in reader.feed(data or b""):
                    if isinstance(message, Done) and message.id == asked.id:
                        return message
        raise _silent(node.name)
    finally:
        channel.close()


def _silent(node: str) -> ClusterError:
    return ClusterError(f"the agent of {node} does not answer", "see `lab status`")


@cache
def library() -> dict[str, str]:
    """What nodes are lent of pyroute2, by which their agents make links: text by path. Nothing of it is imported here.

    Raises:
        ClusterError: it is not installed.
    """
    spec = find_spec(LIBRARY)
    if spec is None or spec.origin is None:
        raise ClusterError(f"{LIBRARY} is not installed, by which links are made", f"pip install {LIBRARY}")
    folder = Path(spec.origin).parent
    paths = sorted(path for part in LIBRARY_PARTS for path in folder.glob(part))
    return {path.relative_to(folder.parent).as_posix(): path.read_text(encoding="utf-8") for path in paths}


# -- what faults act on


class ClusterTarget:
    """What faults act on: the nodes of a cluster, by what its engine and its agents can do.

    Whoever uses it is alone: nobody else injects or takes back a fault of the cluster meanwhile.
    """

    def __init__(self, engine: Engine, cluster: ClusterInfo) -> None:
        self.engine = engine.name
        self.cluster = cluster.name
        self.journal = FaultJournal(engine.name, cluster.name)
        self.addresses: Mapping[str, str] = {node.name: node.address for node in cluster.nodes}
        """Of every node of the cluster."""
        self.ranks: Mapping[int, str] = {}
        """The node of each rank of the run that goes on; empty where none does."""
        self._engine, self._info = engine, cluster
        self.line: AgentLine | None = None
        """To the agents of the run that goes on; None: each is asked over a channel of its own."""

    def _node(self, name: str) -> Node:
        return self._info.named(name)[0]

    def running(self, node: str) -> bool:
        """Whether a node runs now, as its engine sees it."""
        return self._engine.node_state(self._node(node)).running

    def kill(self, node: str) -> None:
        """Cut a node's power; it is not marked as stopped by hand."""
        capable(self._engine, PowerControl).kill(self._node(node))

    def start(self, node: str) -> None:
        """Start a node and wait until its agent can fork workers; tell it, and others, what is in force."""
        capable(self._engine, PowerControl).start(self._info, [self._node(node)], announce=lambda _: None)
        in_force = [one.what for one in self.journal.standing() if one.what is not None and one.state != HEALING]
        for uninformed in self._uninformed(node) if in_force else ():
            for what in in_force:
                what.renew(self, uninformed)

    def _uninformed(self, node: str) -> Sequence[str]:
        """Who has to be told once more what is in force: a node that is back, and all, where it has another address."""
        before = self.addresses
        now = {one.name: one.address for info in self._engine.find(self.cluster) for one in info.nodes}
        self.addresses = {name: now.get(name) or address for name, address in before.items()}
        return [node] if self.addresses == before else [name for name in before if self.running(name)]

    def pause(self, node: str) -> None:
        """Have every process of a node stand still, where it runs."""
        capable(self._engine, PauseControl).pause(self._node(node))

    def resume(self, node: str) -> None:
        """Have them go on, where they stand still."""
        capable(self._engine, PauseControl).resume(self._node(node))

    def paused(self, node: str) -> bool:
        """Whether they stand still."""
        return isinstance(self._engine, PauseControl) and self._engine.paused(self._node(node))

    def limit(self, node: str, *, cpus: float | None = None, memory_bytes: int | None = None) -> None:
        """Let a node use no more than this from now on; what is None stays as it is."""
        capable(self._engine, LimitControl).limit(self._node(node), cpus, memory_bytes)

    def unlimit(self, node: str, *, cpus: bool = False, memory: bool = False) -> None:
        """Let a node use as much again as it was made with."""
        machine, info = self._engine.machine(), self._info
        made_cpus, made_bytes = info.shape.cpus or machine.cores, info.limits.memory_bytes or machine.memory_bytes
        self.limit(node, cpus=made_cpus if cpus else None, memory_bytes=made_bytes if memory else None)

    def throttle(self, node: str) -> Mapping[str, float]:
        """What a node may use now: `cpus` and `memory_bytes`."""
        return capable(self._engine, LimitControl).throttle(self._node(node))._asdict()

    def ask(self, node: str, deed: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have the agent of a node do a deed (see `on_node.deeds`) and wait until it is done; what it found.

        Raises:
            LabError: it cannot be done, or the agent does not answer in time.
        """
        return self._request(Do, node, deed, arguments)

    def take_back(self, node: str, deed: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """As `ask`, for having it undone, whether it was done or not."""
        return self._request(Undo, node, deed, arguments)

    def look_at(self, node: str, deed: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """As `ask`, for its state; nothing is changed."""
        return self._request(LookAt, node, deed, arguments)

    def _request(
        self, kind: type[Do | Undo | LookAt], node: str, deed: str, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        if self.paused(node):
            raise ClusterError(f"{node} stands still, its agent too", "heal that first: `lab fault heal`")
        done = self._send(node, kind("", f"faults.{deed}", dict(arguments)))
        if done.wrong == LIBRARY_LACKING:
            self._send(node, Do("", "faults.library", {"files": library()}))
            done = self._send(node, kind("", f"faults.{deed}", dict(arguments)))
        if done.wrong:
            raise ClusterError(f"{node}: {done.wrong}")
        return done.found

    def _send(self, node: str, asked: Asked) -> Done:
        asked = asked._replace(id=os.urandom(8).hex())
        done = self.line.ask(node, asked) if self.line is not None else None
        return done or _ask_directly(self._engine, self._info, self._node(node), asked)


# -- injecting and healing


class Breaker:
    """Injects faults into one cluster, and takes them back.

    Args:
        target: what they act on.
        by: who does it: a run, or `lab fault`.
    """

    def __init__(self, target: ClusterTarget, by: str = BY_HAND) -> None:
        self.target = target
        self.by = by
        self._journal = target.journal
        self._nodes_lock = nodes_lock(target.engine, target.cluster)

    def apply(self, what: FaultKind, until: float | None = None) -> tuple[str, ReadBack]:
        """Inject it, and read back that it is in force; returns what the journal calls it, and what was found.

        What could be done in part only is undone.

        Raises:
            LabError: it cannot be done.
        """
        with self._nodes_lock.held(str(what), _PATIENCE_S):
            identity = self._journal.begin(what, self.by, until)
            try:
                what.apply(self.target)
                found = what.read_back(self.target)
                if not found.in_force:
                    raise LabError(f"{what} was done, and is not in force")
            except (LabError, OSError):
                with suppress(LabError, OSError):  # what cannot be undone stays in the journal
                    self._undo(identity, what)
                raise
            self._journal.write_state(identity, IN_FORCE)
        return identity, found

    def undo(self, identity: str, what: FaultKind) -> None:
        """Take it back; where that fails, it stays in the journal.

        Raises:
            LabError: it cannot be taken back.
        """
        with self._nodes_lock.held(f"healing {what}", _PATIENCE_S):
            if any(one.id == identity for one in self._journal.standing()):  # else somebody else has
                self._undo(identity, what)

    def _undo(self, identity: str, what: FaultKind) -> None:
        self._journal.write_state(identity, HEALING)
        what.undo(self.target)
        self._journal.write_state(identity, UNDONE)


def heal_all(
    engine: Engine, name: str, info: ClusterInfo | None, tell: Callable[[str], object], *, by_hand: bool = True
) -> list[Standing]:
    """Undo what was broken on purpose, what came last first, and say so in a line; returns what was undone.

    Args:
        engine: of the cluster.
        name: the cluster's.
        info: None where there is none: then nothing is broken any more.
        tell: called with that line, and with what could not be undone.
        by_hand: undo also what `lab fault` did.
    """
    journal = FaultJournal(engine.name, name)
    if info is None:
        journal.forget()
        return []
    breaker, healed = Breaker(ClusterTarget(engine, info)), []
    for one in reversed([one for one in journal.standing() if by_hand or one.by != BY_HAND]):
        if one.what is None:
            tell(f"warning: {one.said} was done by another version of the lab: remove the cluster with `lab down`")
            continue
        try:
            breaker.undo(one.id, one.what)
        except (LabError, OSError) as error:
            tell(f"warning: {one.said} could not be taken back: {getattr(error, 'message', error)}")
        else:
            healed.append(one)
    if healed:
        tell(f"healed what was broken on purpose: {listing(one.said for one in reversed(healed))}")
    return healed


def as_broken(info: ClusterInfo) -> ClusterInfo:
    """The cluster, with nodes that do not run on purpose as stopped, and those without their cable as running."""
    standing = FaultJournal(info.engine, info.name).standing()
    on_purpose = {node for one in standing if one.what is not None for node in one.what.nodes}
    states = {RUNNING: RUNNING, _AGENT_ANSWERS: RUNNING}
    nodes = (
        replace(node, state=states.get(node.state, STOPPED)) if node.name in on_purpose else node for node in info.nodes
    )
    return replace(info, nodes=tuple(nodes))


# -- methods of `Cluster`


def stop(self: Cluster, *nodes: str) -> ClusterInfo:
    """Stop nodes as a power cut would, also while a run goes on; they stay so until they are started.

    Args:
        nodes: their names, such as `"node2"`.

    Returns:
        The cluster as it is then.

    Raises:
        UsageError: there is no node of such a name.
        ClusterUnfit: there is no cluster.
        ClusterBusy: somebody makes it, changes it or removes it.
    """
    with _changing_nodes(self, "lab stop") as info:
        running = [node for node in info.named(*nodes) if node.state != STOPPED]
        capable(self.engine, PowerControl).stop(running)
        return self.existing()


def start(self: Cluster, *nodes: str) -> ClusterInfo:
    """Start nodes that do not run, and wait until they can take part in a run; one that goes on may take them in.

    Args:
        nodes: their names; none: all that were stopped.

    Returns:
        The cluster as it is then.

    Raises:
        UsageError: there is no node of such a name.
        ClusterUnfit: there is no cluster.
        ClusterBusy: somebody makes it, changes it or removes it.
        ClusterError: a node does not start; the message says why.
    """
    with _changing_nodes(self, "lab start") as info:
        wanted = info.named(*nodes) if nodes else [node for node in info.nodes if node.state == STOPPED]
        down = [node for node in wanted if node.state != RUNNING]
        capable(self.engine, PowerControl).start(info, down, announce=self.announce)
        return self.existing()


@contextmanager
def _changing_nodes(cluster: Cluster, purpose: str) -> Iterator[ClusterInfo]:
    """Hold the cluster where nobody has it; beside a run, only against others who change nodes."""
    with nodes_lock(cluster.engine.name, cluster.name).held(purpose), _beside_runs(cluster, purpose):
        yield cluster.existing()


@contextmanager
def _beside_runs(cluster: Cluster, purpose: str) -> Iterator[None]:
    """Hold the cluster where nobody has it; not beside those who make, change or remove it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(cluster.lock.held(purpose, exclusive=True))
        except ClusterBusy:
            if (cluster.lock.holder() or {}).get("exclusive"):
                raise
        yield


class InForce:
    """A fault that is in force; as a context manager it is healed at the end of its block."""

    def __init__(self, breaker: Breaker, identity: str, what: FaultKind, found: Mapping[str, Any]) -> None:
        self.what = what
        self.found = found
        """What was read back where it was injected."""
        self._breaker, self._identity = breaker, identity

    def heal(self) -> None:
        """Take it back; does nothing where somebody else has.

        Raises:
            LabError: it cannot be taken back.
        """
        self._breaker.undo(self._identity, self.what)

    def __enter__(self) -> InForce:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.heal()

    def __repr__(self) -> str:
        return f"<{self.what}, in force>"


def fault(self: Cluster, what: str | FaultKind, *words: str, for_s: float | None = None) -> InForce:
    """Break something, also while a run goes on; it stays so until it is healed, or the next run begins or ends.

    Args:
        what: a kind, such as `"kill"`, or one with its data, such as `Kill(node="node2")`.
        words: what `lab fault` would be told behind the kind, such as `"node2"`.
        for_s: how long it is meant to be in force; whoever calls heals it.

    Returns:
        The fault, in force; also a context manager that heals it.

    Raises:
        UsageError: there is no such kind, node or rank, or the engine cannot do it.
        ClusterUnfit: there is no cluster.
        ClusterBusy: somebody makes it, changes it or removes it.
        LabError: it could not be done.
    """
    wanted = fault_of(what, *words) if isinstance(what, str) else what
    _refuse_by_worker(type(wanted))
    with _beside_runs(self, "lab fault"):
        info = self.existing()
        info.named(*wanted.nodes)
        cannot = wanted.why_not(self.engine.name) or (wanted.strict_cannot if info.shape.strict else "")
        if cannot:
            raise UsageError(f"cluster {info.name} cannot have {wanted}, which {cannot}")
        breaker = Breaker(ClusterTarget(self.engine, info))
        identity, found = breaker.apply(wanted, time.time() + for_s if for_s is not None else None)
    return InForce(breaker, identity, wanted, found.found)


def faults(self: Cluster) -> list[Standing]:
    """What is broken on purpose now, in its order."""
    return FaultJournal(self.engine.name, self.name).standing()


def heal(self: Cluster) -> list[Standing]:
    """Take back everything that is broken on purpose, what came last first; returns what was.

    What cannot be taken back is announced, and stands.
    """
    if not faults(self):
        return []
    with _beside_runs(self, "lab fault"):
        return heal_all(self.engine, self.name, self.info(), self.announce)


def fault_of(kind: str, *words: str) -> FaultKind:
    """A fault as `lab fault` is told it: a kind, and what there is to say of it.

    Raises:
        UsageError: there is no such kind, it is one that only a rank can do, or it is told too little, or too much.
        ScenarioError: it is told something else than it allows.
    """
    kinds = fault_kinds()
    if kind not in kinds:
        raise UsageError(
            f"there is no kind of fault {kind!r}{did_you_mean(kind, kinds)}", "`lab fault kinds` lists them"
        )
    _refuse_by_worker(kinds[kind])
    if not words:
        raise UsageError(f"{kind} needs to be told what", f"as in `lab fault {kinds[kind].on_the_command_line()}`")
    return parse_kind(kind, kinds[kind].parse(words))


def _refuse_by_worker(kind: type[FaultKind]) -> None:
    if kind.by_worker:
        raise UsageError(
            f"{key_of(kind)} is done by a rank itself, at a point of its own",
            "say which in a scenario's `faults:`, or with `lab run --fault`",
        )
