"""What is asked of a swarm's manager: its hosts, and the services and tasks that are nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from lab.engine.docker.connection import Connection
from lab.engine.docker.direct import Refused
from lab.errors import EngineUnavailable

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


class Manager:
    """The manager that one connection leads to."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def hosts(self) -> list[Host]:
        """All hosts, by name; of several with one name, those after the first have their id in it too.

        Raises:
            EngineUnavailable: the engine is no manager of a swarm.
        """
        try:
            found = self.connection.ask("GET", "/nodes")
        except Refused as refused:
            if refused.status != _NO_MANAGER:
                raise
            raise EngineUnavailable(
                f"the Docker engine is no manager of a swarm: {refused.explanation.partition('.')[0]}",
                "`docker swarm init` makes it one; or say in ~/.config/lab/swarm.json where the manager is",
            ) from refused
        hosts: dict[str, Host] = {}
        for node in sorted(found, key=lambda node: (node["Description"]["Hostname"], node["CreatedAt"])):
            host = _host(node)
            if host.name in hosts:
                host = host._replace(name=f"{host.name}-{host.id[:6]}")
            hosts[host.name] = host
        return list(hosts.values())

    def services(self, labels: list[str]) -> list[dict[str, Any]]:
        """The services with these labels, given as `name=value` or `name`."""
        found: list[dict[str, Any]] = self.connection.ask("GET", f"/services?filters={_labelled(labels)}")
        return found

    def tasks(self, labels: list[str]) -> list[dict[str, Any]]:
        """The tasks of such services."""
        found: list[dict[str, Any]] = self.connection.ask("GET", f"/tasks?filters={_labelled(labels)}")
        return found

    def make_network(self, body: Mapping[str, Any]) -> None:
        """Make a network."""
        self.connection.ask("POST", "/networks/create", body)

    def make_service(self, body: Mapping[str, Any]) -> str:
        """Make a service; returns its id."""
        return str(self.connection.ask("POST", "/services/create", body)["ID"])

    def change_service(self, service: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        """Give a service another specification."""
        version = service["Version"]["Index"]
        self.connection.ask("POST", f"/services/{service['ID']}/update?version={version}", spec)

    def remove_service(self, name: str) -> bool:
        """Remove a service; whether it was there."""
        return self._gone(f"/services/{name}")

    def remove_network(self, identity: str) -> bool:
        """Remove a network; whether it was there and no task is on it any more."""
        return self._gone(f"/networks/{identity}")

    def networks(self, labels: list[str]) -> list[dict[str, Any]]:
        """The networks of the swarm with these labels."""
        asked = quote(json.dumps({"label": labels, "scope": ["swarm"]}))
        found: list[dict[str, Any]] = self.connection.ask("GET", f"/networks?filters={asked}")
        return found

    def _gone(self, path: str) -> bool:
        try:
            self.connection.ask("DELETE", path)
        except Refused as refused:
            if refused.status in (400, 403, 404, 409):
                return False
            raise
        return True


def newest(tasks: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The last task of each service, by the id of that: those before it have ended."""
    return {task["ServiceID"]: task for task in sorted(tasks, key=_made_at)}


def _made_at(task: Mapping[str, Any]) -> str:
    return str(task["CreatedAt"]).rstrip("Z")  # which would come after the digits of a fraction


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


def _labelled(labels: list[str]) -> str:
    return quote(json.dumps({"label": labels}))
