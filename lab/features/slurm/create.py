"""Making a Slurm cluster: a folder, an allocation, and a process that holds an agent on each machine of it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lab
from lab.engine.home import new_folder, register_cluster
from lab.engine.local.channel import LocalChannel
from lab.engine.outliving import may_outlive
from lab.engine.payload import sent_first
from lab.engine.protocol import Announce, Channel, Request
from lab.engine.ready import HELLO, wait_ready
from lab.errors import ClusterError
from lab.features.slurm.allocation import allocate
from lab.features.slurm.command import ask, environment, last_word
from lab.features.slurm.layout import ENGINE, FIRST, LOG, said_file, shared_folder, write_description
from lab.features.slurm.request import NO_TORCH, agent_argv, queue_s
from lab.features.slurm.said import Host, read_hosts
from lab.features.slurm.state import node_state, read_cluster
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.words import plural

_READY_TIMEOUT_S = 300.0
"""Where torch lies on a file system of a network, the first import takes minutes."""
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
    greet(folder, info.nodes, announce)
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


def greet(folder: Path, nodes: Sequence[Node], announce: Announce) -> None:
    """Wait until the agent of each node answers.

    Raises:
        ClusterError: one did not start.
    """
    import tenacity

    retry = tenacity.Retrying(
        wait=tenacity.wait_fixed(0.005),
        stop=tenacity.stop_after_delay(10.0),
        retry=tenacity.retry_if_exception_type(OSError),
        reraise=True,
    )
    channels: list[Channel] = []
    try:
        for node in nodes:
            channels.append(retry(LocalChannel, node))
            channels[-1].send(HELLO)
        lost = wait_ready(channels, _READY_TIMEOUT_S, announce)
    except OSError as error:
        raise ClusterError(f"the nodes did not start: {_last_words(folder / LOG)}") from error
    finally:
        for channel in channels:
            channel.close()
    if lost is not None:
        raise _explain(lost.node)


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
