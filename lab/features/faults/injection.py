"""Inject faults into a running cluster and undo them: one at a time, each recorded in the journal first."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lab.engine.protocol import Engine, PowerControl, require_capability
from lab.errors import ClusterBusy, ClusterError, LabError, UsageError
from lab.features.faults.fault import kind_data, kind_of, parse_kind
from lab.features.faults.kinds import FaultKind, fault_kinds, key_of
from lab.features.faults.target import ClusterTarget
from lab.frozen import Frozen
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node
from lab.run.lock import faults_file, nodes_lock
from lab.spec.reading import did_you_mean
from lab.words import join_words

if TYPE_CHECKING:
    from lab.cluster import Cluster

BEGUN, IN_FORCE, HEALING = "begun", "in force", "healing"
"""States, in their order."""
BY_HAND = "lab fault"
"""Replaces the name of the run if no run injected the fault."""


class Standing(Frozen):
    """A fault that the lab began to inject and has not undone."""

    id: str
    what: FaultKind | None
    """None: another version of the lab injected it."""
    description: str
    """In words: `kill node2`."""
    by: str
    """The run that injected it, or `lab fault`."""
    since: float
    """Unix time."""
    until: float | None
    """Unix time at which it is due to be healed."""
    state: str

    def to_json(self) -> dict[str, Any]:
        """Return the fault as plain data."""
        data = {"said" if name == "description" else name: value for name, value in vars(self).items()}
        return {**data, "what": kind_data(self.what) if self.what is not None else None}


class FaultJournal:
    """The journal of one cluster; a writer holds the lock of its nodes."""

    def __init__(self, engine: str, cluster: str) -> None:
        self.path = faults_file(engine, cluster)

    def _entries(self) -> dict[str, dict[str, Any]]:
        with suppress(OSError, ValueError):  # the file is missing, or another version of the lab wrote it
            return dict(json.loads(self.path.read_bytes()))
        return {}

    def standing(self) -> list[Standing]:
        """Return the faults that were begun and not undone, in order."""
        return [_standing(identity, entry) for identity, entry in self._entries().items()]

    def in_force(self) -> list[FaultKind]:
        """Return the faults in force and those whose injection has begun, without those that heal now."""
        return [one.what for one in self.standing() if one.what is not None and one.state != HEALING]

    def write(self, identity: str, **fields: Any) -> None:
        """Write the state of a fault so that it survives this process; without fields, write that it is undone.

        Raises:
            ClusterError: The journal cannot be written.
        """
        entries = self._entries()
        if fields:
            entries[identity] = {**entries.get(identity, {}), **fields}
        else:
            entries.pop(identity, None)
        new = self.path.with_suffix(".new")
        hint = "free disk space there, or set XDG_STATE_HOME to a folder of your own"
        with ClusterError.on_os_error(f"cannot write the journal of faults {self.path}", hint):
            if not entries:
                self.path.unlink(missing_ok=True)
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with new.open("w", encoding="utf-8") as file:
                json.dump(entries, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)


def _standing(identity: str, entry: Mapping[str, Any]) -> Standing:
    what = None
    with suppress(LabError, ValueError, TypeError, AttributeError, KeyError):
        what = kind_of(entry["what"])
    fields = {"description" if name == "said" else name: value for name, value in entry.items()}
    return Standing(id=identity, **{**fields, "what": what})


_PATIENCE_S = 90.0
"""Longer than starting a node takes."""
_AGENT_ANSWERS = "disconnected"
"""The state of a node without its cable: its agent is reached over the engine."""


# -- injecting and healing


def _journal_of(target: ClusterTarget) -> FaultJournal:
    journal = FaultJournal(target.engine, target.cluster)
    target.in_force = journal.in_force
    return journal


@dataclass(frozen=True, repr=False)
class InForce:
    """A fault in force; a context manager that heals it at the end of its block."""

    target: ClusterTarget
    """The nodes that it acts on."""
    id: str
    """Its key in the journal."""
    what: FaultKind
    measured: Mapping[str, Any] = field(default_factory=dict)
    """Measurements on the nodes after the injection."""

    def heal(self) -> None:
        """Undo the fault, if it is still in force. If this fails, it stays in the journal.

        Raises:
            LabError: It cannot be undone.
        """
        with nodes_lock(self.target.engine, self.target.cluster).held(f"healing {self.what}", _PATIENCE_S):
            if any(one.id == self.id for one in _journal_of(self.target).standing()):
                self.undo()

    def undo(self) -> None:
        """Undo the fault; the caller holds the lock of the nodes."""
        journal = _journal_of(self.target)
        journal.write(self.id, state=HEALING)
        self.what.undo(self.target)
        journal.write(self.id)

    def __enter__(self) -> InForce:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()


def inject_fault(target: ClusterTarget, what: FaultKind, by: str = BY_HAND, until: float | None = None) -> InForce:
    """Inject a fault, and check that it is in force; undo a fault that was injected only in part.

    Args:
        target: The nodes that it acts on.
        what: The fault.
        by: The name of a run, or `lab fault`.
        until: Unix time at which it is due to be healed.

    Raises:
        LabError: It cannot be injected.
    """
    journal, one = _journal_of(target), InForce(target, os.urandom(6).hex(), what)
    begun = {"said": str(what), "by": by, "since": time.time(), "until": until, "state": BEGUN}
    with nodes_lock(target.engine, target.cluster).held(str(what), _PATIENCE_S):
        journal.write(one.id, what=kind_data(what), **begun)
        try:
            what.apply(target)
            measured = what.read_back(target)
            if not measured.pop("in_force"):
                raise LabError(f"the lab injected {what}, but it has no effect", "see `lab fault list`")
        except (LabError, OSError):
            with suppress(LabError, OSError):  # a fault that cannot be undone stays in the journal
                one.undo()
            raise
        journal.write(one.id, state=IN_FORCE)
    return replace(one, measured=measured)


def heal_all(
    engine: Engine, name: str, info: ClusterInfo | None, announce: Callable[[str], object], *, by_hand: bool = True
) -> list[Standing]:
    """Undo all faults, the last one first, announce it in a line, and return those that were undone.

    Args:
        engine: of the cluster.
        name: the cluster's.
        info: the cluster; None if it no longer exists, and its faults neither.
        announce: called with that line, and with a warning for each fault that could not be undone.
        by_hand: whether to undo faults of `lab fault` too.
    """
    journal = FaultJournal(engine.name, name)
    if info is None:
        journal.path.unlink(missing_ok=True)
        return []
    target, healed = ClusterTarget(engine, info), []
    for one in reversed(journal.standing()):
        if one.by == BY_HAND and not by_hand:
            continue
        if one.what is None:
            announce(
                f"warning: another version of the lab injected {one.description}: remove the cluster with `lab down`"
            )
            continue
        try:
            InForce(target, one.id, one.what).heal()
        except (LabError, OSError) as error:
            announce(f"warning: {one.description} could not be undone: {getattr(error, 'message', error)}")
        else:
            healed.append(one)
    if healed:
        announce(f"healed {join_words(one.description for one in reversed(healed))}")
    return healed


def as_broken(info: ClusterInfo) -> ClusterInfo:
    """Return the cluster with nodes that faults stopped as stopped, and nodes without their cable as running."""
    standing = FaultJournal(info.engine, info.name).standing()
    on_purpose = {node for one in standing if one.what is not None for node in one.what.nodes}

    def as_meant(node: Node) -> Node:
        if node.name not in on_purpose:
            return node
        return replace(node, state=RUNNING if node.state in (RUNNING, _AGENT_ANSWERS) else STOPPED)

    return replace(info, nodes=tuple(map(as_meant, info.nodes)))


# -- methods of `Cluster`


def stop_nodes(self: Cluster, *nodes: str) -> ClusterInfo:
    """Stop nodes as a power cut does, also during a run, until `start` starts them.

    Args:
        nodes: Their names, such as `"node2"`.

    Returns:
        The cluster afterwards.

    Raises:
        UsageError: There is no node of such a name.
        ClusterUnfit: There is no cluster.
        ClusterBusy: Another command creates, changes, or removes it.
    """
    with nodes_lock(self.engine.name, self.name).held("lab stop"), _hold_cluster(self, "lab stop"):
        running = [node for node in self.existing().named(*nodes) if node.state != STOPPED]
        require_capability(self.engine, PowerControl).stop(running)
        return self.existing()


def start_nodes(self: Cluster, *nodes: str) -> ClusterInfo:
    """Start nodes that do not run, and wait until they can join a run; a run in progress may add them.

    Args:
        nodes: Their names; none: all stopped nodes.

    Returns:
        The cluster afterwards.

    Raises:
        UsageError: There is no node of such a name.
        ClusterUnfit: There is no cluster.
        ClusterBusy: Another command creates, changes, or removes it.
        ClusterError: A node does not start; the message says why.
    """
    with nodes_lock(self.engine.name, self.name).held("lab start"), _hold_cluster(self, "lab start"):
        info = self.existing()
        wanted = info.named(*nodes) if nodes else [node for node in info.nodes if node.state == STOPPED]
        down = [node for node in wanted if node.state != RUNNING]
        require_capability(self.engine, PowerControl).start(info, down, announce=self.announce)
        return self.existing()


@contextmanager
def _hold_cluster(cluster: Cluster, purpose: str) -> Iterator[None]:
    """Lock the cluster unless a run holds it; refuse while another command creates, changes, or removes it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(cluster.lock.held(purpose, exclusive=True))
        except ClusterBusy:
            if (cluster.lock.holder() or {}).get("exclusive"):
                raise
        yield


def inject_by_name(self: Cluster, what: str | FaultKind, *words: str, for_s: float | None = None) -> InForce:
    """Inject a fault, also during a run; it stays in force until you heal it or the next run begins or ends.

    Args:
        what: A kind, such as `"kill"`, or a fault, such as `Kill(node="node2")`.
        words: The words of `lab fault` after the kind, such as `"node2"`.
        for_s: Seconds that it stays in force; the caller heals it.

    Returns:
        The fault, in force; also a context manager that heals it.

    Raises:
        UsageError: There is no such kind, node, or rank, or the engine does not support the fault.
        ClusterUnfit: There is no cluster.
        ClusterBusy: Another command creates, changes, or removes it.
        LabError: It could not be injected.
    """
    wanted = fault_of(what, *words) if isinstance(what, str) else what
    _refuse_by_worker(type(wanted))
    with _hold_cluster(self, "lab fault"):
        info = self.existing()
        info.named(*wanted.nodes)
        cannot = wanted.why_not(self.engine.name) or (wanted.strict_cannot if info.shape.strict else "")
        if cannot:
            raise UsageError(f"cannot inject {wanted}, which {cannot}", "see `lab fault kinds`")
        until = time.time() + for_s if for_s is not None else None
        return inject_fault(ClusterTarget(self.engine, info), wanted, until=until)


def list_faults(self: Cluster) -> list[Standing]:
    """Return the faults that are in force, in order."""
    return FaultJournal(self.engine.name, self.name).standing()


def heal_faults(self: Cluster) -> list[Standing]:
    """Undo all faults, the last one first, and return those that were in force.

    Faults that cannot be undone are announced, and stay in force.
    """
    if not list_faults(self):
        return []
    with _hold_cluster(self, "lab fault"):
        return heal_all(self.engine, self.name, self.info(), self.announce)


def fault_of(kind: str, *words: str) -> FaultKind:
    """Parse a fault from the words of `lab fault`: its kind, and the values of its keys.

    Raises:
        UsageError: The kind is unknown or only for ranks, or values are missing or left over.
        ScenarioError: A value is not allowed.
    """
    kinds = fault_kinds()
    if kind not in kinds:
        hint = "`lab fault kinds` lists them"
        raise UsageError(f"there is no kind of fault {kind!r}{did_you_mean(kind, kinds)}", hint)
    _refuse_by_worker(kinds[kind])
    if not words:
        raise UsageError(f"{kind} needs a target", f"for example `lab fault {kinds[kind].on_the_command_line()}`")
    return parse_kind(kind, kinds[kind].parse(words))


def _refuse_by_worker(kind: type[FaultKind]) -> None:
    if kind.by_worker:
        hint = "write it in a scenario's `faults:`, or use `lab run --fault`"
        raise UsageError(f"a rank itself injects {key_of(kind)}, at an event of its script", hint)
