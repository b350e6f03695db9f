"""The hosts of a swarm, and the engine of each, which all that concerns one node is asked of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from lab.engine.docker.connection import CONTEXT, Connection
from lab.engine.docker.engine import DockerEngine
from lab.errors import EngineUnavailable
from lab.features.swarm.manager import Host, Manager
from lab.features.swarm.settings import Settings, follows

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
        self.manager = Manager(Connection(host=settings.manager))

    @cached_property
    def known(self) -> Mapping[str, Host]:
        """Every host of the swarm, by name, as the manager told it once.

        Raises:
            EngineUnavailable: the manager is none, or does not answer.
        """
        return {host.name: host for host in self.manager.hosts()}

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
        return Connection(host=address) if address else self.manager.connection

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
                self.engine(name).connection.ping(_PATIENCE_S)
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

    def each(self, action: Callable[[str], T], names: Iterable[str]) -> dict[str, T]:
        """Do the same for each host at once; hosts whose engine does not answer are left out."""

        def one(name: str) -> tuple[str, T] | None:
            try:
                return name, action(name)
            except EngineUnavailable:
                return None

        names = list(names)
        if len(names) < 2:
            done = [one(name) for name in names]
        else:
            with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(names))) as pool:
                done = list(pool.map(one, names))
        return dict(each for each in done if each is not None)


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
