"""The Slurm engine: a cluster is an allocation, and a node a job step on one of its machines.

A holder process on the login node, where `lab up` ran, holds the agents by the standard streams of their steps.
The engine finds a cluster by its folder there, and by the labels in the comment of its job.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import lab
from lab.engine import agent_holder, boot
from lab.engine import ownership as label
from lab.engine.doctor import Check, Wanted
from lab.engine.packages import package_folders
from lab.engine.payload import initial_input
from lab.engine.protocol import Announce, Channel, NodeState, Removed, Request, Traits, Trouble
from lab.errors import ClusterError, ClusterUnfit, EngineUnavailable
from lab.features.slurm import command, create
from lab.features.slurm.command import is_idle, last_error_line, query_slurm, run_command
from lab.features.slurm.create import shared_folder
from lab.features.slurm.on_node.node_control import NOT_THERE, WILL_NOT
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node, Shape
from lab.plan.limits import Machine
from lab.polling import poll_until
from lab.words import format_count, format_duration, group_pairs, join_words

_TRY_S = 30
_NOT_FREE = "no machine was free for a test"
_PROGRAM = "import importlib.util as u, sys; print(sys.executable) if u.find_spec('torch') else sys.exit(3)"
_TRY = 'for python do command -v "$python" >/dev/null && "$python" -c "$0" && exit; done; exit 3'


def examine_slurm(home: Path, wanted: Wanted, pythons: Sequence[str]) -> list[Check]:
    """Check whether Slurm grants machines, and whether they can be nodes."""
    try:
        version = query_slurm("sinfo", "--version").strip()
        shared = f"{shared_folder(home, 'x').parent}; all nodes have to see it; set another one with LAB_SLURM_SHARED"
        checks = [*_machines(wanted), _a_node(pythons), Check("ok", "shared folder", shared)]
        return [Check("ok", "engine", version), *checks]
    except EngineUnavailable as error:
        return [Check("failed", "engine", error.message, error.hint)]


def _machines(wanted: Wanted) -> list[Check]:
    lines = query_slurm("sinfo", "--noheader", "--Node", "--format=%P %T").splitlines()
    checks = []
    for partition, states in group_pairs(line.partition(" ")[::2] for line in lines).items():
        idle = sum(map(is_idle, states))
        default = partition.endswith("*")
        name = f"{partition.rstrip('*')}{' (the default)' if default else ''}"
        summary = f"{name}: {format_count(len(states), 'machine')}, {idle} idle"
        fix = f"--allocation partition=NAME, or fewer than {wanted.nodes} nodes"
        checks.append(Check.judge("partition", summary, default and len(states) < wanted.nodes, fix))
    return checks or [Check("failed", "partition", "Slurm has no partition for you", "ask the cluster's administrator")]


def _a_node(pythons: Sequence[str]) -> Check:
    """Run one process on an idle machine, to check its Python for torch."""
    options = "-QQ --nodes=1 --ntasks=1 --immediate=5 --time=1 --job-name=lab-doctor --mpi=none"
    try:
        done = run_command("srun", *options.split(), "sh", "-c", _TRY, _PROGRAM, *pythons, deadline_s=_TRY_S)
    except EngineUnavailable:
        return Check("warning", "node", _NOT_FREE, "try again later")
    if python := done.stdout.strip():
        return Check("ok", "node", f"has torch, in {python}")
    if done.returncode == 3:
        fix = "set LAB_SLURM_PYTHON to a Python with torch that all machines have, or activate one"
        return Check("failed", "node", f"none of {join_words(pythons)} has torch there", fix)
    return Check("warning", "node", last_error_line(done.stderr) or _NOT_FREE, "try again later")


_SUSPENDED_S = 10.0
"""Interval of asking Slurm, during a run, whether it has suspended the job: its controller serves many users."""
_SUSPENDED = Trouble("was suspended by Slurm", silent=True)
_PAUSED = Trouble("was paused", silent=True)
_FATE_S = 3.0
"""Slurm may report the end of a job this much later than the end of its agents."""
_FATE_POLL_S = 0.05
_LEFT = (0, 143)
"""Exit codes of an agent after a request to stop."""
_LEAVING_S = 20.0
"""Agents end within less than this after a request to stop; after it, only Slurm waits for the job."""
_SETTLE_S = 0.5
_REMOVAL_POLL_S = 0.03
_DEADLINE_S = 60.0
_FILES_DEADLINE_S = 900.0
_CANNOT_RUN = (126, 127)
_HOLD = "import sys; sys.path.insert(0, {above!r}); from {module} import main; main()"
_SIDECAR = "import sys; sys.path.append({site!r}); from labnode.features.slurm.on_node.node_control import main; main()"
_PYTHON = 'exec "$(cat "$0/python")" "$@"'
"""Runs the Python of the node's agent; the first argument is the node's folder."""
_READ = 'cd "$(dirname "$1")" && ls -d "$(basename "$1")" >/dev/null && exec tar -cf - "$(basename "$1")"'
_WRITE = 'cd "$1" && exec tar -xf -'
_NO_SUCH = "No such file or directory"
_OF_SLURM = ("srun:", "slurmstepd")
"""Prefixes of lines that Slurm adds to a node's output."""


class CommandEngine(agent_holder.HolderEngine):
    """Engines that run commands in nodes by a program, such as srun: what they do with processes and files there."""

    control = "holder.sock"
    life = "holder.lock"
    log = "holder.log"
    silence_hint = ""
    """What to do if a node does not answer."""
    no_torch_hint: str
    """What to do if a node has no Python with torch."""

    def __init__(self) -> None:
        self.home = home_of(self.name)

    def argv_on(self, node: Node, *words: str) -> list[str]:
        """Return the argv of a command in a node.

        Raises:
            ClusterError: Its cluster was removed.
        """
        raise NotImplementedError

    def own_environment(self) -> dict[str, str]:
        """Return the environment of such commands; messages of tar are parsed."""
        return {**os.environ, "LC_ALL": "C"}

    def folder_of(self, node: Node) -> str:
        """Return the folder of a node in it."""
        raise NotImplementedError

    def run_console(self, cluster: ClusterInfo, node: Node, words: Sequence[str], *, tty: bool) -> int:
        """Run a command in a node with this process's standard streams."""
        raise NotImplementedError

    def explain_end(self, node: Node, state: NodeState) -> str:
        """Return the scheduler's explanation of a node's end; empty if it did not end the node."""
        raise NotImplementedError

    def explain_lost(self, node: Node) -> ClusterError:
        """Return the error for a node that ended while it was starting."""
        state, words = self.node_state(node), self.read_last_line(Path(f"{node.handle}.said"))
        if state.exit_code == boot.NO_TORCH:
            return ClusterError(f"{node.name} has no Python with torch: {words}", self.no_torch_hint)
        ended = f"{node.name} on {node.host} {state.sentence()} while it was starting: {words}"
        return ClusterError(ended, "see `lab doctor`")

    def node_state(self, node: Node) -> NodeState:
        """Return how a node ended, in the scheduler's words if it ended the node."""
        state = super().node_state(node)
        if state.running or state.gone or agent_holder.stopped_file(node.handle).exists():
            return state
        return state._replace(message=self.explain_end(node, state))

    def make_folder(self, cluster: str, shape: Shape, run: str | None, **fields: Any) -> Path:
        """Create the folder of a cluster, with its description, and return it."""
        folder = label.new_folder(self.home, cluster, _home_variable(self.name))
        label.register_cluster(self.name, cluster, folder)
        self.describe(folder, shape=shape.to_json(), run=run, version=lab.__version__, **fields)
        return folder

    def describe(self, folder: Path, **fields: Any) -> None:
        """Add fields to the description of a cluster, which is replaced atomically."""
        new = folder / f"{agent_holder.DESCRIPTION}.new"
        new.write_text(json.dumps({**agent_holder.read_description(folder), **fields}))
        new.rename(folder / agent_holder.DESCRIPTION)

    def start_holder(
        self, module: str, folder: Path, environment: Mapping[str, str], **request: Any
    ) -> Callable[[], bool]:
        """Start the holder of a new cluster; return a function that tells whether it has ended.

        Args:
            module: its `main` holds the agents.
            folder: of the cluster.
            environment: of the holder.
            request: what it holds, for `main`.
        """
        (folder / "agent.bin").write_bytes(initial_input())
        program = _HOLD.format(above=str(Path(lab.__file__).parent.parent), module=module)
        argv = [sys.executable, "-c", program, json.dumps({"folder": str(folder), **request})]
        return agent_holder.start_holder(argv, environment, folder / self.log)

    def discard(self, known: Mapping[str, Any], names: Iterable[str], nodes: int, *shared: Path) -> Removed:
        """Kill the holders of clusters that nothing runs for any more, and remove their folders.

        Args:
            known: the descriptions of clusters that had a folder.
            names: of all of them.
            nodes: how many there were, if no description says so.
            shared: other folders of theirs.
        """
        names = sorted(filter(label.NAME.fullmatch, {*known, *names}))  # a scheduler may answer anything
        for name in names:
            life = self.home / name / self.life
            if not agent_holder.holder_died(life):  # it may have ended by itself
                with suppress(OSError, ValueError):
                    os.kill(int(life.read_text()), signal.SIGKILL)
            label.forget_cluster(self.name, name)
        agent_holder.remove_folders([*shared, *(self.home / name for name in names)])
        described = sum(len(description.get("hosts", ())) for description in known.values())
        return Removed(clusters=tuple(names), nodes=described or nodes, files=len(names))

    def read_state(self, node: Node) -> str:
        """Return the state of a node."""
        if self.paused(node):
            return "paused"
        if agent_holder.is_listening(node.handle):
            return RUNNING
        return STOPPED if agent_holder.stopped_file(node.handle).exists() else "dead"

    def memory_bytes(self, node: Node) -> int | None:
        """Return the memory of a node's processes; None if it cannot be measured."""
        with suppress(ClusterError, ValueError):
            return int(self._run_sidecar(node, "memory"))
        return None

    def kill(self, node: Node) -> None:
        """Kill everything below a node's first process at once, and wait until its end was reported."""
        self._run_sidecar(node, "kill")
        agent_holder.await_end(node)
        agent_holder.paused_file(node.handle).unlink(missing_ok=True)

    def pause(self, node: Node) -> None:
        """Pause every process of a node."""
        if not agent_holder.is_listening(node.handle):
            raise ClusterError(f"{node.name} is not running", f"`lab start {node.name}`")
        agent_holder.paused_file(node.handle).touch()
        try:
            self._run_sidecar(node, "pause")
        except ClusterError:
            self.resume(node)
            raise

    def resume(self, node: Node) -> None:
        """Resume every process of a node, if it is paused."""
        if self.paused(node):
            with suppress(ClusterError):  # it no longer runs
                self._run_sidecar(node, "resume")
            agent_holder.paused_file(node.handle).unlink(missing_ok=True)

    def paused(self, node: Node) -> bool:
        """Return whether a node is paused."""
        return agent_holder.paused_file(node.handle).exists()

    def trouble(self, channel: Channel) -> Trouble | None:
        """Return why an existing node does not work."""
        return _PAUSED if self.paused(channel.node) else None

    def execute(self, cluster: ClusterInfo, node: Node, argv: Sequence[str], *, tty: bool) -> int:
        """Run a command in a node with this process's standard streams; return its exit code."""
        words = ("sh", "-c", 'cd "$0"; exec "$@"', self.folder_of(node), *argv)
        code = self.run_console(cluster, node, words, tty=tty)
        if code in _CANNOT_RUN:
            raise ClusterError(f"{node.name} cannot run {argv[0]!r} (exit code {code})")
        return code

    def ask_python(self, cluster: ClusterInfo, program: str) -> str:
        """Return the output of a program that the Python of the first node runs."""
        packages, node = self.packages(cluster.shape), cluster.nodes[0]
        folders = [package_folders(packages)] if packages else []
        done = self._run_on(node, ["sh", "-c", _PYTHON, self.folder_of(node), "-c", program, *folders])
        return done.stdout.decode("utf-8", "replace")

    def read_files(self, node: Node, path: str) -> Iterator[bytes]:
        """Return a file or folder of a node as a tar."""
        archive = tempfile.TemporaryFile()
        self._pipe(node, f"read {path} on", ["sh", "-c", _READ, "lab", path.rstrip("/")], stdout=archive)
        archive.seek(0)
        return iter(lambda: archive.read(1 << 20), b"")

    def write_files(self, node: Node, path: str, archive: Iterator[bytes]) -> None:
        """Create a file or folder of a node from a tar."""
        folder = os.path.dirname(path)
        with tempfile.TemporaryFile() as packed:
            packed.writelines(archive)
            packed.seek(0)
            self._pipe(node, f"write {folder} on", ["sh", "-c", _WRITE, "lab", folder], stdin=packed)

    def site_of(self, node: Node) -> str:
        """Return the folder of the agent's files in a node."""
        return f"{self.folder_of(node)}/site"

    def _run_sidecar(self, node: Node, what: str) -> str:
        """Perform an action on all processes of a node; return its output.

        Raises:
            ClusterError: The node does not run, or the action fails.
        """
        root, program = self.folder_of(node), _SIDECAR.format(site=self.site_of(node))
        done = self._run_on(node, ["sh", "-c", _PYTHON, root, "-c", program, what, f"{root}/first"])
        if done.returncode == WILL_NOT:
            raise ClusterError(f"some processes of {node.name} did not stop")
        if done.returncode == NOT_THERE or (not done.stdout and done.returncode):
            problem = command.last_error_line(done.stderr.decode(errors="replace"))
            raise ClusterError(f"{node.name} is not running", problem)
        return done.stdout.decode("utf-8", "replace")

    def _run_on(
        self, node: Node, words: Sequence[str], deadline_s: float = _DEADLINE_S, **files: IO[bytes]
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command in a node; `files` are its streams."""
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **files}
        argv, environ = self.argv_on(node, *words), self.own_environment()
        try:
            return subprocess.run(argv, stderr=subprocess.PIPE, timeout=deadline_s, env=environ, check=False, **streams)
        except subprocess.TimeoutExpired:
            why = f"{node.name} did not answer within {format_duration(deadline_s)}"
            raise ClusterError(why, self.silence_hint) from None

    def _pipe(self, node: Node, action: str, words: Sequence[str], **files: IO[bytes]) -> None:
        """Run a command in a node with files as its streams.

        Raises:
            ClusterError: It fails, or takes too long.
        """
        done = self._run_on(node, words, _FILES_DEADLINE_S, **files)
        if done.returncode:
            errors = done.stderr.decode("utf-8", "replace")
            absent = _NO_SUCH in errors or "can't cd to" in errors
            problem = _NO_SUCH if absent else command.last_error_line(errors) or f"exit code {done.returncode}"
            raise ClusterError(f"cannot {action} {node.name}: {problem}")


class SlurmEngine(CommandEngine):
    """Clusters that are allocations.

    Raises:
        EngineAbsent: Slurm's commands are not on this machine.
    """

    name = create.ENGINE
    silence_hint = "see `squeue --me`"
    no_torch_hint = "set LAB_SLURM_PYTHON to a Python with torch that all machines have, or activate one first"
    ready_timeout_s = 300.0
    """If torch is on a network file system, the first import takes minutes."""
    unlimited = MappingProxyType({"processes": "--max-processes"})
    traits = Traits(
        cannot={
            "limits": "is not possible on the slurm engine: a job has its limits from its beginning",
            "memory": "is not possible on the slurm engine: other jobs may share the machine's memory",
            "links": "is not possible on the slurm engine: its nodes may not change the networks of their machines",
            "cable": "is not possible on the slurm engine: its nodes may not change the networks of their machines",
        }
    )

    def __init__(self) -> None:
        command.refuse_absence()
        super().__init__()
        self._suspended: dict[str, tuple[float, bool]] = {}
        """By job number: the monotonic time of the last query for suspension, and the answer."""

    # -- finding

    def read_cluster(self, folder: Path) -> ClusterInfo | None:
        """Return the cluster in a folder; None if there is none, or it has no machines yet."""
        data = agent_holder.read_description(folder)
        if "port" not in data:
            return None
        locations = zip(data["addresses"], data["hosts"], strict=True)
        folders = {name: str(create.shared_folder(self.home, folder.name) / name) for name in ("shared", "data")}
        return self.make_info(folder, data, locations, gpus="engine", master_port=int(data["port"]), **folders)

    def find(self, cluster: str | None = None) -> list[ClusterInfo]:
        """Return the owner's existing clusters by their folders, or by the labels of their jobs if a folder is gone."""
        clusters = {info.name: info for info in super().find(cluster)}
        for job in self._jobs(cluster) if cluster is None or cluster not in clusters else ():
            if job.cluster not in clusters and job.hosts:
                hosts = command.query_slurm("scontrol", "show", "hostnames", job.hosts).split()
                locations = [("", host) for host in hosts]
                description = {name.removeprefix(f"{label.NAMESPACE}."): text for name, text in job.labels.items()}
                clusters[job.cluster] = self.make_info(self.home / job.cluster, description, locations, gpus="engine")
        return [info for _, info in sorted(clusters.items())]

    def nodeless(self) -> list[str]:
        """Return the names of the owner's clusters that have remains but no node."""
        waiting = {job.cluster for job in self._jobs(None) if not job.hosts}
        return sorted({*super().nodeless(), *waiting} - {info.name for info in self.find()})

    def _jobs(self, cluster: str | None) -> list[command.Job]:
        """Return the owner's running jobs of all clusters of this home, or of the one of that name."""
        argv = ["squeue", "--noheader", f"--user={os.getuid()}", f"--format={command.JOBS}"]
        argv += [f"--name={create.job_name(cluster)}"] if cluster else []
        jobs = command.read_jobs(command.query_slurm(*argv))
        mine = {label.OWNER: label.current_owner(), command.HOME: str(self.home)}
        mine |= {label.CLUSTER: cluster} if cluster else {}
        return [job for job in jobs if not job.ending and mine.items() <= job.labels.items()]

    def explain_end(self, node: Node, state: NodeState) -> str:
        """Return Slurm's explanation of a node's end; empty if its job continues."""
        if not (job := job_of(node)):
            return ""

        def is_known(fate: command.Fate) -> bool:
            """Whether Slurm's controller knows of the end: it may learn later of that of an agent asked to stop."""
            return fate.over or not (state.exit_code in _LEFT or fate.state == "COMPLETING")

        fate = poll_until(lambda: _fate_of(job), _FATE_S, _FATE_POLL_S, is_known)
        if fate.state == "NODE_FAIL":
            hosts = command.read_hosts(command.query_slurm("scontrol", "--oneliner", "show", "node", node.host))
            if (lost := next((host for host in hosts if not command.is_well(host)), None)) is not None:
                reason = f" ({lost.reason})" if lost.reason else ""
                return f"was lost: its host {node.host} is {lost.state} in Slurm{reason}"
        return fate.description if fate.over else ""

    def trouble(self, channel: Channel) -> Trouble | None:
        """Return why an existing node does not work."""
        if paused := super().trouble(channel):
            return paused
        job, now = job_of(channel.node), time.monotonic()
        asked, suspended = self._suspended.get(job, (now, False))
        if now - asked > _SUSPENDED_S:
            asked, suspended = now, _fate_of(job).suspended
        self._suspended[job] = asked, suspended
        return _SUSPENDED if suspended else None

    def machine(self) -> Machine:
        """Return the smallest machine that Slurm grants by default."""
        return command.least_machine(command.query_slurm("sinfo", "--noheader", "--format=%P|%c|%m"))

    # -- creating

    def requests(self, cluster: str, shape: Shape, *, run: str | None) -> list[Request]:
        """Return the requests of `create`; create nothing."""
        pythons, packages, owner = self._pythons(shape), self.packages(shape), label.current_owner()
        return create.requests_for(self.home, cluster, shape, owner=owner, run=run, pythons=pythons, packages=packages)

    def _pythons(self, shape: Shape) -> list[str]:
        """Return the Pythons of nodes: the first one that has torch on its machine is used."""
        if shape.requirements:  # their environment extends this Python
            return [sys.executable]
        if shape.image is not None:
            return ["python3", "python"]
        chosen = os.environ.get("LAB_SLURM_PYTHON")
        return [chosen] if chosen else [sys.executable, "python3", "python"]

    def create(self, cluster: str, shape: Shape, *, run: str | None, announce: Announce) -> ClusterInfo:
        """Create every node, and wait until its agent can fork workers; after an error nothing is left."""
        if shape.image is not None:
            _refuse_without_pyxis(shape.image)
        return super().create(cluster, shape, run=run, announce=announce)

    def start_agents(
        self, cluster: str, shape: Shape, run: str | None, requests: Sequence[Request], announce: Announce
    ) -> Callable[[], bool]:
        """Create the folders, request the allocation, and start the agents on its machines."""
        asked, shared, *steps = (request.body for request in requests)
        folder = self.make_folder(cluster, shape, run)
        create.make_shared(shared_folder(self.home, cluster), shared["data"])
        announce(f"asking Slurm for {format_count(shape.nodes, 'machine')}")
        job = command.request_allocation(asked["argv"], create.queue_s(shape), announce)
        self.describe(folder, job=job)
        hosts = create.hosts_of(job)[: shape.nodes]
        names, addresses = [host.name for host in hosts], [create.resolve_host(host) for host in hosts]
        self.describe(folder, hosts=names, addresses=addresses, port=create.port_of(job))
        where = ", ".join(names) if len(names) <= 4 else f"{names[0]} to {names[-1]}"
        announce(f"starting {format_count(shape.nodes, 'node')} in job {job}, importing torch on {where}")
        of_nodes = zip(steps, names, addresses, strict=True)
        argvs = {one["config"]["node"]: create.agent_argv(one, job, host, at) for one, host, at in of_nodes}
        environment = {**command.clean_environment(), **shape.env}
        return self.start_holder("lab.features.slurm.holder", folder, environment, job=job, argvs=argvs)

    def last_line(self, text: str) -> str:
        """Return the last line of what a cluster's processes wrote, before the lines of Slurm."""
        own = [line for line in text.splitlines() if line.strip() and not line.startswith(_OF_SLURM)]
        return own[-1].strip() if own else command.last_error_line(text) or "no message from them"

    # -- using

    def run_console(self, cluster: ClusterInfo, node: Node, words: Sequence[str], *, tty: bool) -> int:
        """Run a command on a node's machine with this process's standard streams."""
        options = ("-QQ", "--unbuffered", *(("--pty",) if tty else ()))
        variables = {**command.clean_environment(), **agent_holder.node_variables(cluster, node)}
        return subprocess.run(self.argv_on(node, *words, options=options), env=variables, check=False).returncode

    def argv_on(self, node: Node, *words: str, options: Sequence[str] = ("-QQ",)) -> list[str]:
        """Return the argv of a command on a node's machine; quiet, or srun would report that the command failed.

        Raises:
            ClusterError: Its cluster was removed.
        """
        folder = Path(node.handle).parent
        description = agent_holder.read_description(folder)
        if "job" not in description:
            raise ClusterError(f"{node.name} was removed", "see `lab status`")
        in_image = Shape.from_json(description["shape"]).image is not None
        inside = [f"--container-name={create.container_name(folder.name, node.name)}"] if in_image else []
        return [*create.step_argv(str(description["job"]), node.host, *options, *inside), *words]

    def own_environment(self) -> dict[str, str]:
        """Return the environment of such commands; messages of tar are parsed."""
        return {**command.clean_environment(), "LC_ALL": "C"}

    def folder_of(self, node: Node) -> str:
        """Return the folder of a node on its machine."""
        folder = Path(node.handle).parent
        return create.own_folder(folder.parent, folder.name, node.name)

    # -- removing

    def remove(self, cluster: str | None, *, settle: bool = False) -> Removed:
        """Remove the owner's cluster of this name, or all of them: the job, its holder, the folders."""
        known = {folder.name: agent_holder.read_description(folder) for folder in self.folders(cluster)}
        agent_holder.unlink_sockets(self.home / name for name in known)
        jobs = self._jobs(cluster)
        if settle and not jobs:  # it was killed while it requested one
            time.sleep(_SETTLE_S)
            jobs = self._jobs(cluster)
        numbers = sorted({str(one["job"]) for one in known.values() if "job" in one} | {job.number for job in jobs})
        if numbers:
            command.query_slurm("scancel", "--quiet", *numbers)
            left = ("squeue", "--noheader", f"--user={os.getuid()}", f"--jobs={','.join(numbers)}", "--format=%i")
            poll_until(lambda: not command.query_slurm(*left).strip(), _LEAVING_S, _REMOVAL_POLL_S)
        names = {*known, *(job.cluster for job in jobs)}
        return self.discard(known, names, len(jobs), *(shared_folder(self.home, name) for name in names))

    def examine(self, wanted: Wanted) -> list[Check]:
        """Return the checks of `lab doctor` for this engine."""
        return examine_slurm(self.home, wanted, self._pythons(Shape(nodes=1)))


def home_of(engine: str) -> Path:
    """Return this machine's folder of this owner's clusters of an engine; another login node has others.

    It is short, because the path of a Unix socket has at most 107 bytes.
    """
    default = f"/tmp/lab-{engine}-{os.getuid()}-{label.short_digest(label.current_owner())}"
    return Path(os.environ.get(_home_variable(engine), default))


def _home_variable(engine: str) -> str:
    return f"LAB_{engine.upper()}_HOME"


def job_of(node: Node) -> str:
    """Return the number of a node's job; empty if its cluster was removed."""
    return str(agent_holder.read_description(Path(node.handle).parent).get("job", ""))


def _fate_of(job: str) -> command.Fate:
    """Return the current state of a job."""
    return command.read_fate(command.query_slurm("scontrol", "--oneliner", "show", "job", job))


def _refuse_without_pyxis(image: str) -> None:
    """Refuse an image if srun has no option for it.

    Raises:
        ClusterUnfit: It has none.
    """
    if "--container-image" not in command.run_command("srun", "--help").stdout:
        why = f"cannot create nodes of {image}: this Slurm has no pyxis, the plugin for srun --container-image"
        raise ClusterUnfit(why, "leave the image out: nodes then use the Python of their machines")
