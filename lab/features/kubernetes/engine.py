"""The Kubernetes engine: a node is a pod, and its agent a command that kubectl starts there.

A holder process on this machine holds the agents by the standard streams of `kubectl exec`. The engine finds a cluster
by its folder here, and by the labels of its pods.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO

from lab.engine import agent_holder, boot
from lab.engine import ownership as label
from lab.engine.doctor import Check, Wanted
from lab.engine.protocol import Announce, NodeState, Removed, Request, Traits
from lab.errors import ClusterError, EngineUnavailable, LabError
from lab.features.kubernetes import command, pods
from lab.features.slurm.engine import CommandEngine
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.plan.limits import Machine
from lab.polling import poll_until
from lab.spec.kinds import parse_size
from lab.words import format_count, format_duration, name_nodes

_FIRST_S, _ANNOUNCE_S = 2.0, 10.0
"""Seconds until the first announcement of waiting, and between the next ones."""
_POLL_S = 0.3
_FATE_S = 3.0
"""The API server may report the end of a pod this much later than its stream ends."""
_PROBE_S, _RETURN_S = 4.0, 15.0
"""Deadlines of a command in a pod, and of an API server that restarts."""
_LEAVING_S = 8.0
"""Pods of machines that work end within less than this."""
_UNKNOWN = Machine(cores=1, memory_bytes=1 << 30)
"""Assumed if machines may not be listed."""
_ENDED = b"command terminated with exit code "
_STREAM_LOST = (0, 1)
"""Exit codes of kubectl if the stream ended, not the agent."""


class KubernetesEngine(CommandEngine):
    """Clusters of pods.

    Raises:
        EngineAbsent: kubectl is not on this machine.
    """

    name = pods.ENGINE
    ready_timeout_s = 180.0
    silence_hint = "see `kubectl get pods`"
    no_torch_hint = "use an image that has torch, or leave --image out: the lab's own has it"
    unlimited = MappingProxyType({"processes": "--max-processes"})
    traits = Traits(
        cannot={
            "limits": "is not possible on the kubernetes engine: a pod has its limits from its beginning",
            "memory": "is not possible on the kubernetes engine: other pods may share the machine's memory",
            "links": "is not possible on the kubernetes engine: pods may not change their networks",
            "cable": "is not possible on the kubernetes engine: pods may not change their networks",
        }
    )

    def __init__(self) -> None:
        command.refuse_absence()
        super().__init__()
        self.owner = label.short_digest(f"{label.current_owner()} {self.home}")
        """Value of the label of everything that belongs to this owner's clusters in this folder."""

    # -- finding

    def read_cluster(self, folder: Path) -> ClusterInfo | None:
        """Return the cluster in a folder; None if there is none, or its pods have no addresses yet."""
        data = agent_holder.read_description(folder)
        if "addresses" not in data:
            return None
        return self.make_info(folder, data, zip(data["addresses"], data["hosts"], strict=True))

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        """Return the owner's existing clusters by their folders, or by the labels of their pods if a folder is gone."""
        clusters = {info.name: info for info in super().find(cluster)}
        if cluster is None or cluster not in clusters:
            for pod in self._pods(self._targets(cluster), cluster):
                if pod.cluster not in clusters and pod.node == "node0" and not pod.is_leaving:
                    with command.reading_answer():
                        own = pod.annotations.items()
                        notes = {name.removeprefix(f"{label.NAMESPACE}."): text for name, text in own}
                        locations = [("", "")] * Shape.from_json(notes["shape"]).nodes
                        clusters[pod.cluster] = self.make_info(self.home / pod.cluster, notes, locations)
        return [info for _, info in sorted(clusters.items())]

    def _targets(self, cluster: str | None) -> set[command.Target]:
        """Return where the owner's clusters are, or the one of this name."""
        known = (target_of(folder) for folder in self.folders(cluster))
        return {*filter(None, known), pods.target_of(Shape(nodes=1)).resolved()}

    def _pods(self, targets: Iterable[command.Target], cluster: str | None) -> list[command.Pod]:
        """Return the pods of the owner's clusters, or of the one of this name."""
        return [command.read_pod(item) for target in targets for item in target.list("pods", self._selector(cluster))]

    def _selector(self, cluster: str | None) -> str:
        return f"--selector={label.OWNER}={self.owner}" + (f",{label.CLUSTER}={cluster}" if cluster else "")

    def explain_end(self, node: Node, state: NodeState) -> str:
        """Return Kubernetes' explanation of a node's end; empty if its pod runs, and so does its machine."""
        folder = Path(node.handle).parent
        target, name = target_of(folder), self._pod_name(node)
        if target is None or killed_file(node).exists():
            return ""

        uid = agent_holder.read_description(folder)["uids"][node.node_rank]

        def explain() -> str:
            items = target.list("pods", f"--field-selector=metadata.name={name}")
            pod = command.read_pod(items[0]) if items else None
            why = command.explain_end(pod)
            if not why or (pod and pod.reason):
                return why
            return command.explain_end(pod, command.events_of(target, name, uid))

        why, end = None, time.monotonic() + _RETURN_S
        while why is None:
            try:
                why = poll_until(explain, _FATE_S, _POLL_S)
            except EngineUnavailable:
                if time.monotonic() > end:
                    raise
                time.sleep(_POLL_S)
        if why or state.exit_code not in _STREAM_LOST:
            return why
        silence = self._probe(target, name)
        if not silence:
            return command.STREAM_ENDED
        reason = ""
        with suppress(LabError):  # machines may not be listed
            hosts = target.list("nodes", f"--field-selector=metadata.name={node.host}")
            reason = command.why_not_ready(hosts[0]) if hosts else ""
        return f"was lost: its machine {node.host} does not answer ({reason or silence})"

    def _probe(self, target: command.Target, name: str) -> str:
        """Return why no command reaches a pod's machine; empty if its machine answers."""
        try:
            done = target.run("exec", name, "--", "true", deadline_s=_PROBE_S)
        except EngineUnavailable:
            return f"no answer within {format_duration(_PROBE_S)}"
        return command.error_line(done.stderr) if done.returncode and "dial" in done.stderr else ""

    def _pod_name(self, node: Node) -> str:
        return f"{pods.object_name(Path(node.handle).parent.name, self.owner)}-{node.name}"

    def machine(self) -> Machine:
        """Return the smallest machine of the cluster, or a small one if machines may not be listed."""
        with suppress(LabError), command.reading_answer():
            amounts = [item["status"]["allocatable"] for item in pods.target_of(Shape(nodes=1)).list("nodes")]
            cores = [int(one["cpu"].rstrip("m")) // (1000 if one["cpu"].endswith("m") else 1) for one in amounts]
            sizes = [parse_size(one["memory"].replace("i", "iB")) for one in amounts]
            return Machine(cores=max(1, min(cores)), memory_bytes=min(sizes))
        return _UNKNOWN

    # -- creating

    def requests(self, cluster: str, shape: Shape, *, run: str | None) -> list[Request]:
        """Return the objects that `create` makes; create nothing."""
        return pods.requests_for(cluster, shape, person=label.current_owner(), owner=self.owner, run=run)

    def start_agents(
        self, cluster: str, shape: Shape, run: str | None, requests: Sequence[Request], announce: Announce
    ) -> Callable[[], bool]:
        """Create the objects, wait until the pods run, and start the holder."""
        target = pods.target_of(shape).resolved()
        folder = self.make_folder(cluster, shape, run, target=list(target))
        owner, *others = [dict(request.body) for request in requests]
        announce(f"asking Kubernetes for {format_count(shape.nodes, 'pod')} of {pods.image_of(shape)}")
        text = target.ask("create", "--filename=-", "--output=json", text=json.dumps(owner))
        with command.reading_answer():
            made = json.loads(text)["metadata"]
            reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": made["name"], "uid": made["uid"]}
        items = [{**one, "metadata": {**one["metadata"], "ownerReferences": [reference]}} for one in others]
        listed = {"apiVersion": "v1", "kind": "List", "items": items}
        words = ("create", "--filename=-", "--validate=false", "--output=name")
        target.ask(*words, text=json.dumps(listed), deadline_s=60 + shape.nodes)
        ready = self._await_pods(target, cluster, shape, announce)
        lines = ["# nodes of the lab", *(f"{pod.address} {pod.node}" for pod in ready)]
        hosts, addresses = [pod.host for pod in ready], [pod.address for pod in ready]
        self.describe(folder, hosts=hosts, addresses=addresses, uids=[pod.uid for pod in ready])
        where = ", ".join(dict.fromkeys(hosts)) if len({*hosts}) <= 4 else f"{len({*hosts})} machines"
        announce(f"starting {format_count(shape.nodes, 'node')}, importing torch on {where}")
        bodies = [one for one in items if one["kind"] == "Pod"]
        text, pairs = "\n".join(lines), zip(ready, bodies, strict=True)
        argvs = {pod.node: pods.agent_argv(target, body, shape, text) for pod, body in pairs}
        request = {"target": list(target), "owner": reference["name"], "argvs": argvs}
        return self.start_holder("lab.features.kubernetes.command", folder, os.environ, **request)

    def _await_pods(self, target: command.Target, cluster: str, shape: Shape, announce: Announce) -> list[command.Pod]:
        """Wait until all pods run, and return them in the order of their nodes.

        Raises:
            ClusterError: A pod cannot run, or does not in time; the message names its node, and why.
        """
        limit_s = pods.seconds_of(shape, "wait", pods.WAIT)
        began, pause_s = time.monotonic(), _FIRST_S
        pulling: dict[str, str] = {}
        while True:
            known = {pod.node: pod for pod in self._pods([target], cluster)}
            ordered = [known[name] for rank in range(shape.nodes) if (name := f"node{rank}") in known]
            for pod in ordered:
                if pod.waiting[0] == "ErrImagePull":
                    pulling[pod.node] = pod.waiting[1]
                problem, hint = pod.problem
                if problem:
                    cause = f" ({pulling[pod.node]})" if pod.node in pulling else ""
                    raise ClusterError(f"{pod.node} {problem}{cause}", hint)
            waiting = [pod for pod in ordered if not pod.is_ready]
            if not waiting and len(ordered) == shape.nodes:
                return ordered
            waited_s = time.monotonic() - began
            if len(ordered) < shape.nodes and waited_s > _FIRST_S:
                lost = [name for rank in range(shape.nodes) if (name := f"node{rank}") not in known]
                raise ClusterError(f"{name_nodes(lost)}: somebody deleted the pod", "run the command again")
            if waited_s > limit_s:
                why = f"{waiting[0].node} did not start within {format_duration(limit_s)}"
                hint = "change what the pods need, or wait longer: --allocation wait=30m"
                raise ClusterError(f"{why}{self._why_waiting(target, waiting[0])}", hint)
            if waited_s > pause_s:
                pause_s = waited_s + _ANNOUNCE_S
                names = name_nodes(pod.node for pod in waiting)
                announce(f"waiting for {names} for {format_duration(round(waited_s))}"
                         f"{self._why_waiting(target, waiting[0])}")  # fmt: skip
            time.sleep(_POLL_S)

    def _why_waiting(self, target: command.Target, pod: command.Pod) -> str:
        """Return why a pod does not run yet, as the end of a sentence."""
        if pod.unscheduled:
            return f": {pod.unscheduled}"
        events = command.events_of(target, pod.name, pod.uid)
        return f": {list(events.values())[-1]}" if events else f": {pod.waiting[0] or pod.phase}"

    def last_line(self, text: str) -> str:
        """Return the last line of what a cluster's processes wrote, before that of kubectl."""
        return command.error_line(text) or "no message from them"

    def start(self, cluster: ClusterInfo, nodes: Sequence[Node], *, announce: Announce) -> None:
        """Start agents of nodes that do not run."""
        for node in nodes:
            killed_file(node).unlink(missing_ok=True)
        super().start(cluster, nodes, announce=announce)

    # -- using

    def kill(self, node: Node) -> None:
        """Kill everything below a node's first process at once."""
        killed_file(node).touch()
        super().kill(node)

    def argv_on(self, node: Node, *words: str, option: str = "-i") -> list[str]:
        """Return the argv of a command in a pod; the option `-it` gives it a terminal."""
        if (target := target_of(Path(node.handle).parent)) is None:
            raise ClusterError(f"{node.name} was removed", "see `lab status`")
        return target.argv("exec", option, self._pod_name(node), f"--container={pods.CONTAINER}", "--", *words)

    def folder_of(self, node: Node) -> str:
        """Return the folder of a node in its pod."""
        return pods.ROOT

    def site_of(self, node: Node) -> str:
        """Return the folder of the agent's files in a pod."""
        return boot.IMPORT_ROOT

    def run_console(self, cluster: ClusterInfo, node: Node, words: Sequence[str], *, tty: bool) -> int:
        """Run a command in a pod with this process's standard streams, without kubectl's own last line."""
        variables = [f"{name}={text}" for name, text in agent_holder.node_variables(cluster, node).items()]
        argv = self.argv_on(node, "env", *variables, *words, option="-it" if tty else "-i")
        with subprocess.Popen(argv, stderr=subprocess.PIPE) as console:
            assert console.stderr is not None
            copy_errors(console.stderr, 2)
            return console.wait()

    # -- removing

    def remove(self, cluster: str | None, *, settle: bool = False) -> Removed:
        """Remove the owner's cluster of this name, or all of them: the objects, the holder, the folders."""
        known = {folder.name: agent_holder.read_description(folder) for folder in self.folders(cluster)}
        agent_holder.unlink_sockets(self.home / name for name in known)
        targets = self._targets(cluster)
        if settle:
            time.sleep(_POLL_S)
        left = {target: target.list("pods,services,configmaps", self._selector(cluster)) for target in targets}
        for target, items in left.items():
            if items:
                words = ("--grace-period=1", "--wait=false", "--ignore-not-found")
                target.ask("delete", "pods,services,configmaps", self._selector(cluster), *words)
        items = [item for some in left.values() for item in some]
        busy = {target for target, some in left.items() if some}
        poll_until(lambda: all(pod.ended[0] for pod in self._pods(busy, cluster)), _LEAVING_S, _POLL_S)
        for target in busy:  # their processes have ended, or their machines are lost: the objects may stay for long
            forced = ("--grace-period=0", "--force", "--wait=false", "--ignore-not-found")
            target.ask("delete", "pods", self._selector(cluster), *forced)
        with command.reading_answer():
            names = [item["metadata"]["labels"][label.CLUSTER] for item in items]
            pods_left = sum(item["kind"] == "Pod" for item in items)
        return self.discard(known, names, pods_left)

    def examine(self, wanted: Wanted) -> list[Check]:
        """Return the checks of `lab doctor` for this engine."""
        from lab.features.kubernetes.doctor import examine_kubernetes

        return examine_kubernetes(wanted)


def target_of(folder: Path) -> command.Target | None:
    """Return where the pods of the cluster in a folder are; None without such a cluster."""
    words = agent_holder.read_description(folder).get("target")
    return command.Target(*words) if words else None


def killed_file(node: Node) -> Path:
    """Return the file that exists while a node is down because the lab killed it."""
    return Path(f"{node.handle}.killed")


def copy_errors(source: IO[bytes], to: int) -> None:
    """Copy a stream until it ends, without a last line in which kubectl repeats the exit code."""
    kept = b""
    while data := os.read(source.fileno(), 1 << 16):
        kept += data
        begin = kept.rfind(b"\n", 0, len(kept) - 1) + 1
        last = kept[begin:]
        stays = (last.startswith(_ENDED) and len(last) < 2 * len(_ENDED)) or _ENDED.startswith(last)
        os.write(to, kept[:begin] if stays else kept)
        kept = last if stays else b""
    if not kept.startswith(_ENDED):
        os.write(to, kept)
