"""The hosts of a swarm, and the engine of each, which all that concerns one node is asked of."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from lab.engine.docker.connection import CONTEXT, Connection, DockerChannel, Refused
from lab.engine.docker.engine import DockerEngine
from lab.errors import EngineUnavailable
from lab.plan.cluster import Node

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
