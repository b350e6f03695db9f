"""Nodes with packages that their image or Python lacks; a feature builds the images and environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lab.engine.protocol import Announce, Engine
from lab.errors import ClusterUnfit
from lab.feature import find_hook
from lab.plan.cluster import ClusterInfo

ENVIRONMENT = "/opt/lab-packages"
"""The virtual environment of a container. Only workers use it: the agent runs with the Python of the image."""


def package_folders(environment: str) -> str:
    """Return the package folder of an environment as a pattern; `*` matches its Python's version."""
    return f"{environment}/lib/python*/site-packages"


@dataclass(frozen=True, kw_only=True, order=True)
class Prepared:
    """A reusable base for nodes with packages: an image or a virtual environment."""

    name: str
    """Name of the image, or folder of the environment."""
    engine: str
    base: str
    """The image or Python that it extends."""
    requirements: Sequence[str]
    """The requested requirements."""
    added: Sequence[str]
    """The wheels that were added."""
    size_bytes: int


@runtime_checkable
class PackageStore(Protocol):
    """Prepares packages for nodes of one engine; an engine may be its own store."""

    def name_of(self, image: str | None, requirements: Sequence[str]) -> str:
        """Return the name that `prepare` returns, without preparing anything."""

    def prepare(self, image: str | None, packages: Sequence[str], *, announce: Announce, again: bool = False) -> str:
        """Prepare the image or environment of nodes with these packages, and return its name.

        Args:
            image: what the packages are added to; None: the default.
            packages: as pip accepts them.
            announce: called with each line of progress.
            again: build it again, with the latest packages.

        Raises:
            LabError: a package conflicts with an installed one, or cannot be fetched; nothing is left then.
        """

    def prepared(self) -> list[Prepared]:
        """Return all prepared images or environments, by name."""

    def discard(self, prepared: Prepared) -> str:
        """Remove one; return why this is impossible, empty if it was removed."""

    def find_missing(self, cluster: ClusterInfo, requirements: Sequence[str]) -> tuple[str, ...]:
        """Return the requirements that the nodes of a cluster do not meet.

        Raises:
            ClusterError: the nodes do not report their packages.
        """


def package_store(engine: Engine) -> PackageStore:
    """Return the package store of an engine.

    Raises:
        ClusterUnfit: there is none.
    """
    if isinstance(engine, PackageStore):
        return engine
    make = find_hook("package_store")
    store: PackageStore | None = make(engine) if make else None
    if store is None:
        raise ClusterUnfit(f"the {engine.name} engine cannot add packages to nodes", "use nodes that have them")
    return store
