"""Make a Slurm cluster, and do things on its machines: commands, files, what is done to all processes of a node."""

from __future__ import annotations

import json
import math
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import lab
from lab import __version__
from lab.engine import boot
from lab.engine import ownership as label
from lab.engine.archive import empty
from lab.engine.held import greet
from lab.engine.interrupts import may_outlive
from lab.engine.ownership import new_folder, register_cluster
from lab.engine.payload import sent_first
from lab.engine.protocol import Announce, Request
from lab.errors import ClusterError, ClusterUnfit
from lab.features.slurm import look
from lab.features.slurm.command import HOME, Host, allocate, ask, environment, labels_json, last_word, read_hosts
from lab.features.slurm.on_node.beside import NOT_THERE, WILL_NOT
from lab.features.slurm.state import (
    ENGINE,
    FIRST,
    LOG,
    job_name,
    job_of,
    node_state,
    own_folder,
    read_cluster,
    read_description,
    said_file,
    shared_folder,
    write_description,
)
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.words import format_duration, listing, plural

_READY_TIMEOUT_S = 300.0
"""Where torch lies on a file system of a network, the first import takes minutes."""
_LISTENING_S = 10.0
"""The process that holds the agents listens long before."""
_HOLD = "import sys; sys.path.insert(0, {above!r}); from lab.features.slurm.holder import main; main()"
_OF_SLURM = ("srun:", "slurmstepd")
"""How lines begin that Slurm adds to what a node said."""
_FIRST_PORT, _PORTS = 28411, 4096
"""Of rendezvous stores: below those that kernels give away, one for each job, because two may share a machine."""


def create(
    home: Path, cluster: str, shape: Shape, run: str | None, requests: Sequence[Request], announce: Announce
) -> ClusterInfo:
    """Make it, and wait until every agent answers.

    Raises:
        LabError: Slurm gave no allocation, or a node did not start; what was made is still there.
    """
    asked, shared, *steps = requests
    folder = new_folder(home, cluster, "LAB_SLURM_HOME")
    register_cluster(ENGINE, cluster, folder)
    description: dict[str, Any] = {"shape": shape.to_json(), "run": run, "version": lab.__version__}
    write_description(folder, description)
    _make_shared(shared_folder(home, cluster), shared.body["data"])
    announce(f"asking Slurm for {plural(shape.nodes, 'machine')}")
    job = allocate(asked.body["argv"], queue_s(shape), announce)
    write_description(folder, {**description, "job": job})
    hosts = hosts_of(job)[: shape.nodes]
    addresses = [resolve(host) for host in hosts]
    description |= {"job": job, "hosts": [host.name for host in hosts], "addresses": addresses}
    write_description(folder, {**description, "port": _FIRST_PORT + int(job) % _PORTS})
    (folder / FIRST).write_bytes(sent_first())
    announce(f"starting {plural(shape.nodes, 'node')} in job {job}, importing torch on {_listed(hosts)}")
    argvs = {
        step.body["config"]["node"]: agent_argv(step.body, job, host.name, address)
        for step, host, address in zip(steps, hosts, addresses, strict=True)
    }
    _hold(folder, job, argvs, steps[0].body["environment"])
    info = read_cluster(folder)
    assert info is not None
    await_agents(folder, info.nodes, announce)
    found = read_cluster(folder)
    assert found is not None
    return found


def _make_shared(folder: Path, data: dict[str, str]) -> None:
    """The folder that all nodes see, with a link to each folder of data."""
    try:
        for name in ("shared", "data"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name, source in data.items():
            (folder / "data" / name).unlink(missing_ok=True)
            (folder / "data" / name).symlink_to(source)
    except OSError as error:
        raise ClusterError(
            f"cannot make the folder that all nodes share, {folder}: {error.strerror}",
            "set LAB_SLURM_SHARED to a folder of yours on a file system that all machines see",
        ) from error


def hosts_of(job: str) -> list[Host]:
    """The machines of a job.

    Raises:
        ClusterError: it has none: it has ended already.
    """
    names = ask("squeue", "--noheader", f"--jobs={job}", "--format=%N").strip()
    if not names:
        raise ClusterError(f"job {job} has ended before it began", f"`scontrol show job {job}` may say why")
    return read_hosts(ask("scontrol", "--oneliner", "show", "node", names))


def resolve(host: Host) -> str:
    """The address of a machine on the network of all of them.

    Raises:
        ClusterError: its name has none.
    """
    try:
        found = socket.getaddrinfo(host.address, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ClusterError(
            f"{host.address}, as Slurm calls {host.name}, has no address here: {error.strerror or error}"
        ) from error
    return str(min(found, key=lambda one: one[0] != socket.AF_INET)[4][0])


def _listed(hosts: Sequence[Host]) -> str:
    names = [host.name for host in hosts]
    return ", ".join(names) if len(names) <= 4 else f"{names[0]} to {names[-1]}"


def _hold(folder: Path, job: str, argvs: dict[str, list[str]], variables: dict[str, str]) -> None:
    """Start the process that holds the agents; it outlives this one."""
    above = str(Path(lab.__file__).parent.parent)
    said = json.dumps({"folder": str(folder), "job": job, "argvs": argvs})
    with (folder / LOG).open("wb") as log:
        holder = subprocess.Popen(
            [sys.executable, "-c", _HOLD.format(above=above), said],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**environment(), **variables},
            cwd="/",
            start_new_session=True,
        )
    may_outlive(holder)


def await_agents(folder: Path, nodes: Sequence[Node], announce: Announce) -> None:
    """Wait until the agent of each node answers.

    Raises:
        ClusterError: one did not start.
    """
    end = time.monotonic() + _LISTENING_S
    lost = greet(nodes, lambda: time.monotonic() > end, _READY_TIMEOUT_S, lambda: _last_words(folder / LOG), announce)
    if lost is not None:
        raise _explain(lost)


def _explain(node: Node) -> ClusterError:
    state, words = node_state(node), _last_words(said_file(node.handle))
    if state.exit_code == NO_TORCH:
        return ClusterError(
            f"{node.name} has no Python with torch: {words}",
            "name one that is on all machines with LAB_SLURM_PYTHON, or activate its environment before `lab up`",
        )
    return ClusterError(f"{node.name} on {node.host} {state.sentence()} while it was starting: {words}")


def _last_words(path: Path) -> str:
    try:
        said = path.read_text(errors="replace")
    except FileNotFoundError:
        return "the cluster was removed meanwhile"
    own = [line for line in said.splitlines() if line.strip() and not line.startswith(_OF_SLURM)]
    return own[-1].strip() if own else last_word(said) or "no word from them"


QUEUE_S = 3600
"""How long an allocation is waited for where nobody says; `--immediate` is salloc's own word for it."""
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
_OURS = {
    "nodes": "use --nodes",
    "nodelist": "use --hosts",
    "no-shell": "the lab says that itself",
    "job-name": "the lab finds its clusters by it",
    "comment": "the lab finds its clusters by it",
    "jobid": "the lab asks for an allocation of its own",
}
"""Options of salloc that are not for whoever makes a cluster, and why."""
NO_TORCH = 71
"""Exit code of a node on which no Python has torch."""
_START = """: agent of the lab
trap : HUP INT TERM
root=$1 address=$2 look=$3 become=$4 config=$5
shift 5
rm -rf "$root"
mkdir -m 700 "$root" && echo $$ >"$root/first" || exit 1
for python do
  command -v "$python" >"$root/python" || continue
  interface=$("$python" -c "$look" "$address") || continue
  export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME-$interface}"
  [ "$GLOO_SOCKET_IFNAME" ] || unset GLOO_SOCKET_IFNAME
  "$python" -c "$become" "$config"
  code=$?
  cd /
  rm -rf "$root" 2>/dev/null || { chmod -R u+rwX "$root"; rm -rf "$root"; }
  [ $code != 0 ] || scancel --quiet "$SLURM_JOB_ID"
  exit $code
done
rm -rf "$root"
echo "none of $* on $(hostname) can import torch" >&2
exit 71
"""
"""The first process of a node. Ended by a signal, it waits until its agent has left. An agent that leaves because its
standard input ended has nobody any more who would give the allocation back."""


def requests_for(
    home: Path, cluster: str, shape: Shape, *, owner: str, run: str | None, pythons: Sequence[str], packages: str = ""
) -> list[Request]:
    """The allocation, and the steps of its agents: their options but for job, machine and address, which Slurm gives.

    `pythons` are tried on each machine in this order, until one has torch. `packages`: the virtual environment that
    workers use, if any.

    Raises:
        ClusterUnfit: Slurm cannot be asked for that.
    """
    refuse_impossible(shape)
    labels = {
        label.CLUSTER: cluster,
        label.OWNER: owner,
        label.VERSION: __version__,
        label.SHAPE: shape.to_json(),
        HOME: str(home),
        **({label.RUN: run} if run else {}),
    }
    shared = shared_folder(home, cluster)
    return [
        Request(what=f"allocation {job_name(cluster)}", body={"argv": salloc(cluster, shape, labels)}),
        Request(what=f"folder {shared}", body={"data": {name: str(source) for name, source in shape.data.items()}}),
        *(
            Request(
                what=f"step of {node}",
                body={
                    "argv": [*_container(cluster, node, shape, shared), "sh", "-c", _START, "lab"],
                    "config": {**_config(home, cluster, node, shape, shared), "packages": packages},
                    "pythons": list(pythons),
                    "environment": dict(shape.env),
                },
            )
            for node in (f"node{node_rank}" for node_rank in range(shape.nodes))
        ),
    ]


def salloc(cluster: str, shape: Shape, labels: dict[str, str]) -> list[str]:
    """The command that asks for the allocation; what a person says comes last, and so wins."""
    return [
        "salloc",
        "--no-shell",
        f"--job-name={job_name(cluster)}",
        f"--comment={labels_json(labels)}",
        f"--nodes={shape.nodes}",
        "--ntasks-per-node=1",
        f"--immediate={QUEUE_S}",
        *([f"--cpus-per-task={math.ceil(shape.cpus)}"] if shape.cpus else []),
        *([f"--mem={math.ceil(shape.memory_bytes / 2**20)}M"] if shape.memory_bytes else []),
        *([f"--gres=gpu:{shape.gpus}"] if shape.gpus else []),
        *([f"--nodelist={','.join(shape.hosts)}"] if shape.hosts else []),
        *(f"--{name}={value}" if value else f"--{name}" for name, value in shape.allocation.items()),
    ]


def queue_s(shape: Shape) -> float:
    """Seconds after which salloc gives up waiting for the allocation."""
    said = shape.allocation.get("immediate", "")
    return float(said) if said.isdecimal() else QUEUE_S


def step(job: str, host: str, *options: str) -> list[str]:
    """A command that starts one process on a machine of a job, beside whatever runs there."""
    one = ("--nodes=1", "--ntasks=1", "--mem=0", "--mpi=none")
    return ["srun", f"--jobid={job}", "--overlap", f"--nodelist={host}", *one, *options]


def agent_argv(body: Mapping[str, Any], job: str, host: str, address: str) -> list[str]:
    """The command that starts an agent, from what was asked for it and what Slurm has given."""
    options = ["--unbuffered", "--cpu-bind=none", f"--job-name={body['config']['node']}"]
    config, pythons = body["config"], body["pythons"]
    said = [config["root"], address, _program(look.__file__), boot.BECOME, json.dumps(config)]
    return [*step(job, host, *options), *body["argv"], *said, *pythons]


def _program(path: str) -> str:
    return Path(path).read_text()


def _config(home: Path, cluster: str, node: str, shape: Shape, shared: Path) -> dict[str, Any]:
    root = own_folder(home, cluster, node)
    return {
        "node": node,
        "root": root,
        "container": False,
        "import_root": f"{root}/site",
        "memory_bytes": shape.memory_bytes,
        "disk_bytes": shape.disk_bytes,
        "shared": str(shared / "shared"),
    }


def container_name(cluster: str, node: str) -> str:
    """What pyxis calls the container of a node."""
    return f"{job_name(cluster)}-{node}"


def _container(cluster: str, node: str, shape: Shape, shared: Path) -> list[str]:
    """Options of pyxis, which is a plugin of srun's."""
    if shape.image is None:
        return []
    seen = [f"{shared}:{shared}", *(f"{one.source}:{one.target}" for one in shape.volumes)]
    seen += [f"{source}:{source}" for source in shape.data.values()]
    return [
        f"--container-image={shape.image}",
        f"--container-name={container_name(cluster, node)}",
        f"--container-mounts={','.join(seen)}",
        "--container-writable",
    ]


def refuse_impossible(shape: Shape) -> None:
    """Refuse what Slurm cannot be asked for.

    Raises:
        ClusterUnfit: such a shape.
    """
    for name in shape.allocation:
        if name in _OURS:
            raise ClusterUnfit(f"an allocation cannot be told {name} with --allocation", _OURS[name])
        if not _OPTION.fullmatch(name):
            raise ClusterUnfit(
                f"{name!r} is no long option of salloc", "write it without dashes: --allocation partition=gpu"
            )
    if len(shape.hosts) > shape.nodes:
        raise ClusterUnfit(
            f"each node has a host of its own in Slurm, and {listing(shape.hosts)} are more than {shape.nodes}",
            "name fewer, or raise --nodes",
        )
    for volume in shape.volumes:
        if shape.image is None and str(volume.source) != volume.target:
            raise ClusterUnfit(
                f"the slurm engine cannot show {volume.source} at {volume.target} without a container",
                f"use {volume.source} as the target too, or name an image",
            )
    if shape.strict:
        raise ClusterUnfit("the slurm engine cannot be strict: its workers are you", "use --engine docker")
    if shape.image is not None and shape.requirements:
        raise ClusterUnfit(
            "the slurm engine adds no packages to an image", "use an image that has them, or leave the image out"
        )


_DEADLINE_S = 60.0
_FILES_DEADLINE_S = 900.0
_CANNOT_RUN = (126, 127)
_BESIDE = "import sys; sys.path.append({site!r}); from labnode.features.slurm.on_node.beside import main; main()"
_PYTHON = 'exec "$(cat "$0/python")" "$@"'
"""The Python that the node's agent runs in; the first word is the node's folder."""
_READ = 'cd "$(dirname "$1")" && ls -d "$(basename "$1")" >/dev/null && exec tar -cf - "$(basename "$1")"'
_WRITE = 'cd "$1" && exec tar -xf -'
_NO_SUCH = "No such file or directory"


def argv_of(node: Node, *words: str, options: Sequence[str] = ("-QQ",)) -> list[str]:
    """What runs a command on the machine of a node; quiet, or srun would say itself that the command failed.

    Raises:
        ClusterError: its cluster was removed.
    """
    job, folder = job_of(node), Path(node.handle).parent
    if not job:
        raise ClusterError(f"{node.name} was removed", "see `lab status`")
    shape = json.loads((read_description(folder) or {}).get("shape", "{}"))
    inside = [f"--container-name={container_name(folder.name, node.name)}"] if shape.get("image") else []
    return [*step(job, node.host, *options, *inside), *words]


def folder_of(node: Node) -> str:
    """The folder of a node on its machine."""
    folder = Path(node.handle).parent
    return own_folder(folder.parent, folder.name, node.name)


def beside(node: Node, what: str) -> str:
    """Do something to all processes of a node; returns what that says.

    Raises:
        ClusterError: it does not run, or that cannot be done.
    """
    root = folder_of(node)
    words = ["sh", "-c", _PYTHON, root, "-c", _BESIDE.format(site=f"{root}/site"), what, f"{root}/first"]
    done = _run(node, words)
    if done.returncode == WILL_NOT:
        raise ClusterError(f"some processes of {node.name} would not stop")
    if done.returncode == NOT_THERE or (not done.stdout and done.returncode):
        raise ClusterError(f"{node.name} does not run", last_word(done.stderr.decode("utf-8", "replace")))
    return done.stdout.decode("utf-8", "replace")


def ask_python(node: Node, program: str, *arguments: str) -> str:
    """What a program says that the Python of a node runs."""
    said = _run(node, ["sh", "-c", _PYTHON, folder_of(node), "-c", program, *arguments])
    return said.stdout.decode("utf-8", "replace")


def _run(
    node: Node,
    words: Sequence[str],
    deadline_s: float = _DEADLINE_S,
    stdin: IO[bytes] | None = None,
    stdout: IO[bytes] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            argv_of(node, *words),
            stdin=stdin or subprocess.DEVNULL,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=deadline_s,
            env={**environment(), **({"LC_ALL": "C"} if stdin or stdout else {})},  # what tar says is read
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"{node.name} did not answer within {format_duration(deadline_s)}", "see `squeue --me`"
        ) from None


def execute(node: Node, argv: Sequence[str], variables: Mapping[str, str], *, tty: bool) -> int:
    """Run a command with this process's standard streams; returns its exit code.

    Raises:
        ClusterError: there is no such command.
    """
    options = ("-QQ", "--unbuffered", *(("--pty",) if tty else ()))
    words = ("sh", "-c", 'cd "$0"; exec "$@"', folder_of(node), *argv)
    command = argv_of(node, *words, options=options)
    code = subprocess.run(command, env={**environment(), **variables}, check=False).returncode
    if code in _CANNOT_RUN:
        raise ClusterError(f"{node.name} cannot run {argv[0]!r} (exit code {code})")
    return code


def read_files(node: Node, path: str) -> IO[bytes]:
    """A file or folder of a node as a tar whose entries begin with its name.

    Raises:
        ClusterError: there is none, or it cannot be read.
    """
    archive = empty()
    archive.fileno()  # a file of its own, which srun writes
    _pipe(node, f"read {path} on", ["sh", "-c", _READ, "lab", path.rstrip("/")], stdout=archive)
    archive.seek(0)
    return archive


def write_files(node: Node, folder: str, archive: IO[bytes]) -> None:
    """Unpack a tar into a folder of a node.

    Raises:
        ClusterError: it is not there, or cannot be written.
    """
    archive.fileno()
    archive.seek(0)
    _pipe(node, f"write {folder} on", ["sh", "-c", _WRITE, "lab", folder], stdin=archive)


def _pipe(
    node: Node, action: str, words: Sequence[str], stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None
) -> None:
    """Run a command on the machine of a node with files as its streams.

    Raises:
        ClusterError: it fails, or takes too long.
    """
    done = _run(node, words, _FILES_DEADLINE_S, stdin, stdout)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace")
        absent = _NO_SUCH in said or "can't cd to" in said
        problem = _NO_SUCH if absent else last_word(said) or f"exit code {done.returncode}"
        raise ClusterError(f"cannot {action} {node.name}: {problem}")
