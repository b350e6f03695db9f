"""The hosts of a swarm, the engine of each, and what exists on them, found by the labels of services."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from lab.engine import ownership as label
from lab.engine.docker import state as docker
from lab.engine.docker.connection import CONTEXT, Connection, DockerChannel, Refused
from lab.engine.docker.engine import DockerEngine
from lab.engine.ownership import state_folder
from lab.errors import EngineUnavailable, LabError, NodeLost
from lab.plan.cluster import RUNNING, STOPPED, ClusterInfo, Node

T = TypeVar("T")

_PATIENCE_S = 1.5
"""How long a host has for a sign of life, twice: a verdict is not held up for longer by one whose power is off."""
_AT_ONCE = 16


class Hosts:
    """Engines by the name of their host, opened when they are needed.

    Args:
        settings: where they are, as far as somebody said so.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engines: dict[str, DockerEngine] = {}
        self.manager = Connection(host=settings.manager)

    @cached_property
    def known(self) -> Mapping[str, Host]:
        """Every host of the swarm, by name, as the manager told it once; of a second one of a name, with its id in it.

        Raises:
            EngineUnavailable: the manager is none, or does not answer.
        """
        try:
            nodes = self.manager.ask("GET", "/nodes")
        except Refused as refused:
            if refused.status != _NO_MANAGER:
                raise
            raise EngineUnavailable(
                f"the Docker engine is no manager of a swarm: {refused.explanation.partition('.')[0]}",
                "`docker swarm init` makes it one; or say in ~/.config/lab/swarm.json where the manager is",
            ) from refused
        hosts: dict[str, Host] = {}
        for node in sorted(nodes, key=lambda node: (node["Description"]["Hostname"], node["CreatedAt"])):
            host = _host(node)
            if host.name in hosts:
                host = host._replace(name=f"{host.name}-{host.id[:6]}")
            hosts[host.name] = host
        return hosts

    @cached_property
    def by_id(self) -> Mapping[str, Host]:
        """The same by the id that tasks name."""
        return {host.id: host for host in self.known.values()}

    def engine(self, name: str) -> DockerEngine:
        """The engine of a host.

        Raises:
            EngineUnavailable: it does not answer, or nobody knows where it is.
        """
        engine = self._engines.get(name)
        if engine is None:
            try:
                engine = DockerEngine(connection=self._connection(name))
            except EngineUnavailable as error:
                raise EngineUnavailable(f"host {name}: {error.message}", error.hint) from error
            self._engines[name] = engine
        return engine

    def _connection(self, name: str) -> Connection:
        address = self.address(name)
        if address is None:
            raise EngineUnavailable(
                "nobody says where its engine is",
                f"make a context of that name (`docker context create {name} --docker host=ssh://...`), "
                "or see docs/swarm.md",
            )
        return Connection(host=address) if address else self.manager

    def address(self, name: str) -> str | None:
        """Where the engine of a host is; empty: it is the manager that is asked; None: nobody says."""
        if name in self._settings.hosts:
            return self._settings.hosts[name]
        if _has_context(name):
            return CONTEXT + name
        host = self.known.get(name)
        if host is not None and host.manages and sum(one.manages for one in self.known.values()) == 1:
            return ""
        asked = self._settings.manager or os.environ.get("DOCKER_HOST", "")
        return follows(asked, host.address) if host is not None else None

    def await_sign(self, name: str) -> None:
        """See whether the engine of a host gives a sign of life.

        Raises:
            EngineUnavailable: it does not.
        """
        for again in (True, False):
            try:
                self.engine(name).connection.request("GET", "/_ping", timeout_s=_PATIENCE_S)
            except EngineUnavailable as error:
                if _nobody_is_there(error) or not again:
                    raise
            else:
                return

    def answers(self, name: str) -> bool:
        """Whether the engine of a host gives a sign of life."""
        try:
            self.await_sign(name)
        except EngineUnavailable:
            return False
        return True

    def services(self, labels: list[str]) -> list[dict[str, Any]]:
        """The services with these labels, given as `name=value` or `name`."""
        return self.manager.listed("services", {"label": labels})

    def newest_tasks(self, labels: list[str]) -> dict[str, dict[str, Any]]:
        """The last task of each such service, by the id of that: those before it have ended."""
        tasks = self.manager.listed("tasks", {"label": labels})
        made = sorted(tasks, key=lambda task: str(task["CreatedAt"]).rstrip("Z"))  # Z comes after digits of a fraction
        return {task["ServiceID"]: task for task in made}

    def networks(self, labels: list[str]) -> list[dict[str, Any]]:
        """The networks of the swarm with these labels."""
        return self.manager.listed("networks", {"label": labels, "scope": ["swarm"]})

    def make_service(self, body: Mapping[str, Any]) -> str:
        """Make a service; returns its id."""
        return str(self.manager.ask("POST", "/services/create", body)["ID"])

    def remove(self, path: str) -> bool:
        """Remove a service, or a network that no task is on any more; whether it was there.

        Args:
            path: `services/NAME` or `networks/ID`.
        """
        try:
            self.manager.request("DELETE", f"/{path}")
        except Refused as refused:
            if refused.status in (400, 403, 404, 409):
                return False
            raise
        return True

    def each(self, action: Callable[[str], T], names: Iterable[str]) -> dict[str, T]:
        """Do the same for each host at once; hosts whose engine does not answer are left out."""

        def one(name: str) -> tuple[str, T] | None:
            try:
                return name, action(name)
            except EngineUnavailable:
                return None

        names = list(names)
        with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(names) or 1)) as pool:
            return dict(filter(None, pool.map(one, names)))


def _nobody_is_there(error: BaseException | None) -> bool:
    """Whether nothing listens at a socket of this machine: whoever is only slow does."""
    while error is not None and not isinstance(error, ConnectionRefusedError | FileNotFoundError):
        error = error.__cause__
    return error is not None


def _has_context(name: str) -> bool:
    """Whether there is a context of the docker command line of that name; looked up as it names its files."""
    import hashlib

    base = os.environ.get("DOCKER_CONFIG") or os.path.join(os.path.expanduser("~"), ".docker")
    return (Path(base) / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()).is_dir()


_NO_MANAGER = 503


class Host(NamedTuple):
    """A host of the swarm."""

    id: str
    name: str
    """Its host name, as it told the swarm."""
    address: str
    ready: bool
    """Whether the swarm hears of it."""
    takes_tasks: bool
    """Whether it is neither drained nor held free of new tasks."""
    manages: bool
    cores: int
    memory_bytes: int
    engine: str
    """Version of its engine."""


def _host(node: Mapping[str, Any]) -> Host:
    description, state = node["Description"], node["Status"]
    manages = node.get("ManagerStatus") or {}
    address = state.get("Addr", "")
    if address in ("", "0.0.0.0", "127.0.0.1"):
        address = manages.get("Addr", "").rpartition(":")[0] or address
    resources = description.get("Resources", {})
    return Host(
        id=node["ID"],
        name=description["Hostname"],
        address=address,
        ready=state["State"] == "ready",
        takes_tasks=node["Spec"]["Availability"] == "active",
        manages=bool(manages),
        cores=max(1, resources.get("NanoCPUs", 0) // 1_000_000_000),
        memory_bytes=resources.get("MemoryBytes", 0),
        engine=description.get("Engine", {}).get("EngineVersion", ""),
    )


class TaskChannel(DockerChannel):
    """A docker channel that knows its container, and ends when its host does.

    Args:
        node: whose agent is at the other end.
        attached: what its host's engine gave for it.
        container: the engine's id of the task's container.
    """

    def __init__(self, node: Node, attached: Any, container: str) -> None:
        super().__init__(node, attached)
        self.container = container

    def cut(self) -> None:
        """Let whoever listens hear that the other end is gone: a host without power says nothing any more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


_KEYS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "manager": ("an address", lambda value: isinstance(value, str | None)),
    "hosts": (
        "an object of addresses by name",
        lambda value: isinstance(value, dict) and all(isinstance(address, str) for address in value.values()),
    ),
    "shared": (
        "the absolute path of a folder",
        lambda value: value is None or (isinstance(value, str) and value.startswith("/")),
    ),
}
"""What the file may say: what each takes, and whether it is that."""
_SAYS_WHERE = ("ssh", "tcp", "http", "https")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is known of a swarm beforehand."""

    manager: str | None = None
    """Address of the engine of a manager; None: the engine that the docker command line would use."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Address of the engine of each host, by the name that the swarm has for it."""
    shared: str | None = None
    """A folder that all hosts have in common, for what nodes share; None: they share with those on their host."""


def settings_file() -> Path:
    """The file."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(os.environ.get("LAB_SWARM") or f"{base}/lab/swarm.json")


def read_settings() -> Settings:
    """What the file says; nothing, where there is none.

    Raises:
        EngineUnavailable: it cannot be read, or can mean nothing: the message says what was found, and what is allowed.
    """
    path = settings_file()

    def refuse(problem: str) -> EngineUnavailable:
        return EngineUnavailable(f"{path} {problem}", "see docs/swarm.md, or remove it")

    try:
        said = json.loads(path.read_text())
    except FileNotFoundError:
        if os.environ.get("LAB_SWARM"):
            raise EngineUnavailable(f"LAB_SWARM names {path}, which is not there", "see docs/swarm.md") from None
        return Settings()
    except (OSError, ValueError) as error:
        raise refuse(f"cannot be read: {error}") from error
    if not isinstance(said, dict):
        raise refuse("holds no object")
    said.pop("made_by", None)
    for name, value in said.items():
        if name not in _KEYS:
            raise refuse(f"has a key {name!r}; there are manager, hosts and shared")
        takes, is_valid = _KEYS[name]
        if not is_valid(value):
            raise refuse(f"has {name} {value!r}; it takes {takes}")
    return Settings(**said)


def follows(manager: str, address: str) -> str | None:
    """The address of the engine of a host that can be reached as its manager can; None where that cannot be said.

    Args:
        manager: the address of the manager's engine.
        address: the host's own, as the swarm knows it.
    """
    parts = urlsplit(manager)
    if parts.scheme not in _SAYS_WHERE or not parts.hostname or not address:
        return None
    user = f"{parts.username}@" if parts.username else ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{user}{address}{port}"


OWNER = f"{label.NAMESPACE}.swarm.owner"
"""In the place of the usual label: a Docker engine does not take its part of a cluster for one of its own."""
POWER = f"{label.NAMESPACE}.power"
"""Label of a service: `off` while its node was stopped on purpose."""
OFF = "off"
SERVICE = "com.docker.swarm.service.name"
"""Swarm's own label of a task's container."""
TASK = "com.docker.swarm.task.id"
LOST = "lost"
"""The state of a node whose host does not answer."""
Containers = Mapping[str, Mapping[str, Any]]
"""Containers of a host, as its engine lists them, by the task that they are of."""


def filters(cluster: str | None) -> list[str]:
    """The labels of the owner's clusters, or of the one of this name, in Docker's `name=value` form."""
    return docker.filters(cluster, OWNER)


def find_clusters(hosts: Hosts, engine: str, cluster: str | None) -> list[ClusterInfo]:
    """The owner's clusters that exist, wholly or in part."""
    asked = filters(cluster)
    services = hosts.services(asked)
    if not services:
        return []
    tasks = hosts.newest_tasks(asked)

    def containers(host: str) -> Containers:
        hosts.await_sign(host)
        listed = hosts.engine(host).connection.containers(asked)
        return {container["Labels"].get(TASK, ""): container for container in listed}

    names = {host for task in tasks.values() if (host := host_of(hosts, task))}
    answered = hosts.each(containers, sorted(names))
    return docker.gather_clusters(
        engine,
        (
            (service["Spec"]["Labels"], _node(service["Spec"], tasks.get(service["ID"], {}), hosts, answered))
            for service in services
        ),
    )


def host_of(hosts: Hosts, task: Mapping[str, Any]) -> str:
    """Name of the host that runs a task; empty where it has none yet."""
    host = hosts.by_id.get(task.get("NodeID", ""))
    return host.name if host is not None else ""


def _node(spec: Mapping[str, Any], task: Mapping[str, Any], hosts: Hosts, answered: Mapping[str, Containers]) -> Node:
    """The node that a service of this specification is, by its last task; empty: it has none yet."""
    name, host = spec["Labels"][label.NODE], host_of(hosts, task)
    container = answered.get(host, {}).get(task.get("ID", ""))
    if spec["Labels"].get(POWER) == OFF:
        state = STOPPED
    elif container is not None:
        state = docker.container_state(container)
    elif host and host not in answered:
        state = LOST
    else:  # it has no container yet, or none any more
        state = str(task["Status"]["State"]) if task else "pending"
        state = "starting" if state == RUNNING else state
    attachments = task.get("NetworksAttachments") or () if state in (RUNNING, LOST) else ()
    addresses = (address for attachment in attachments for address in attachment.get("Addresses") or ())
    return Node(
        name=name,
        node_rank=int(name.removeprefix("node")),
        handle=spec["Name"],
        address=next(addresses, "").partition("/")[0],
        state=state,
        host=host,
    )


def on_their_hosts(hosts: Hosts, nodes: Sequence[Node]) -> list[Node]:
    """Nodes as the engines of their hosts know them: with the ids of their containers.

    Raises:
        NodeLost: one has no container there.
    """
    services: dict[str, str] = {}
    for host in dict.fromkeys(node.host for node in nodes):
        listed = hosts.engine(host).connection.containers([*filters(None), SERVICE])
        for container in sorted(listed, key=lambda container: container["Created"]):  # the last one is the node
            services[container["Labels"][SERVICE]] = container["Id"]
    for node in nodes:
        if node.handle not in services:
            raise NodeLost(f"{node.name} has no container on host {node.host}", "see `lab status`")
    return [replace(node, handle=services[node.handle]) for node in nodes]


# -- hosts that did not answer


def remember(hosts: Iterable[str], clusters: Iterable[str]) -> None:
    """Keep in mind that clusters are to be removed from hosts."""
    for host, cluster in product(hosts, clusters):
        path = _left() / host / cluster
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def forget(hosts: Iterable[str], clusters: Iterable[str]) -> None:
    """Keep it in mind no more: they are."""
    for host, cluster in product(hosts, clusters):
        (_left() / host / cluster).unlink(missing_ok=True)
    for folder in _entries(_left()):
        with suppress(OSError):  # there is more to remember of that host
            folder.rmdir()


def sweep(hosts: Hosts) -> None:
    """Remove what was left on hosts that are back, and say so on standard error."""
    left = {folder.name: [path.name for path in _entries(folder)] for folder in _entries(_left())}
    for host in hosts.each(hosts.await_sign, left):
        for cluster in left[host]:
            try:
                removed = docker.remove(hosts.engine(host).connection, filters(cluster), 0.0)
            except LabError as error:
                sys.stderr.write(f"warning: cluster {cluster} is still on host {host}: {error.message}\n")
                continue
            forget([host], [cluster])
            if removed:
                sys.stderr.write(f"removed what was left of cluster {cluster} on host {host}, which is back\n")


def _left() -> Path:
    """A folder a host, in it an entry a cluster."""
    return state_folder() / "swarm-left"


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
