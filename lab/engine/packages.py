"""Nodes with packages that their image or their Python does not have: a feature makes what they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lab.engine.protocol import Announce, Engine
from lab.errors import ClusterUnfit
from lab.feature import hook
from lab.plan.cluster import ClusterInfo

ENVIRONMENT = "/opt/lab-packages"
"""The virtual environment of a container. Only workers use it: the agent runs with the Python of the image."""


def package_folders(environment: str) -> str:
    """The folder of packages of an environment, as a pattern: `*` stands for the version of its Python."""
    return f"{environment}/lib/python*/site-packages"


@dataclass(frozen=True, kw_only=True, order=True)
class Prepared:
    """Something that nodes with packages are made of, made once and used again: an image or a virtual environment."""

    name: str
    """Of an image its name, of an environment its folder."""
    engine: str
    base: str
    """What it was made upon."""
    requirements: Sequence[str]
    """What was asked for."""
    added: Sequence[str]
    """The wheels that were missing."""
    size_bytes: int


@runtime_checkable
class PackageStore(Protocol):
    """What makes nodes of one engine with packages; an engine may be its own."""

    def name_of(self, image: str | None, requirements: Sequence[str]) -> str:
        """What `prepare` returns, without making it."""

    def prepare(
        self, image: str | None, requirements: Sequence[str], *, announce: Announce, again: bool = False
    ) -> str:
        """Make ready what nodes with these packages are made of; returns its name.

        Args:
            image: what the packages are added to; None: what nodes are made of by default.
            requirements: as pip takes them.
            announce: called with what is being done.
            again: make it anew, with the latest packages.

        Raises:
            LabError: a package contradicts what is there, or cannot be fetched; nothing is left then.
        """

    def prepared(self) -> list[Prepared]:
        """What is ready for nodes with packages, by name."""

    def discard(self, prepared: Prepared) -> str:
        """Remove one of these; returns why that cannot be, empty if it was done."""

    def lacking(self, cluster: ClusterInfo, requirements: Sequence[str]) -> tuple[str, ...]:
        """Those of some requirements that the nodes of a cluster do not meet.

        Raises:
            ClusterError: they do not say what they have.
        """


def package_store(engine: Engine) -> PackageStore:
    """What makes nodes of an engine with packages.

    Raises:
        ClusterUnfit: nothing does.
    """
    if isinstance(engine, PackageStore):
        return engine
    make = hook("package_store")
    store: PackageStore | None = make(engine) if make else None
    if store is None:
        raise ClusterUnfit(f"the {engine.name} engine cannot add packages to nodes", "use nodes that have them")
    return store
