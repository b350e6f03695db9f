"""What makes nodes with packages on each engine: images, or virtual environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lab.engine.docker.connection import Connection
from lab.engine.docker.image import DEFAULT_IMAGE, inspect_image
from lab.engine.packages import PackageStore, Prepared
from lab.engine.protocol import Announce, Engine, ImageMaker, PythonRunner, capable
from lab.errors import ClusterUnfit
from lab.features.image.make import ensure_image
from lab.features.packages.environments import (
    ensure_environment,
    environment_for,
    environments,
    remove_environment,
)
from lab.features.packages.images import REPOSITORY, ensure_packages, packaged_images, packaged_name, remove_packaged
from lab.features.packages.target import Target, probe_text
from lab.plan.cluster import ClusterInfo


def package_store(engine: Engine) -> PackageStore | None:
    """What makes nodes of an engine with packages; None where nodes are made of neither images nor a Python."""
    if isinstance(engine, ImageMaker):
        return ImagePackages(engine)
    return EnvironmentPackages(engine) if isinstance(engine, PythonRunner) else None


class _Store:
    """What both have in common.

    Args:
        engine: whose nodes get packages.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def target(self, cluster: ClusterInfo) -> Target:
        """The Python of the nodes: what it has, and what packages have to fit."""
        told = capable(self._engine, PythonRunner).ask_python(cluster, probe_text())
        return Target.told(f"cluster {cluster.name}", told)

    def lacking(self, cluster: ClusterInfo, requirements: Sequence[str]) -> tuple[str, ...]:
        """Those of some requirements that the nodes do not meet."""
        target = self.target(cluster)
        return tuple(one for one in requirements if not target.meets(one))


class ImagePackages(_Store):
    """Images upon others."""

    @property
    def _connection(self) -> Connection:
        return capable(self._engine, ImageMaker).image_connection()

    def name_of(self, image: str | None, requirements: Sequence[str]) -> str:
        """What the image with the packages is called."""
        base = image or DEFAULT_IMAGE
        there = inspect_image(self._connection.client, base)
        return packaged_name(there, requirements) if there else f"{REPOSITORY} upon {base}, which is not here yet"

    def prepare(
        self, image: str | None, requirements: Sequence[str], *, announce: Announce, again: bool = False
    ) -> str:
        """Make ready the image that nodes with these packages are made of; returns its name."""
        connection = self._connection
        client = connection.client
        base = ensure_image(client, image or DEFAULT_IMAGE, lambda progress: announce(progress.text))
        return connection.call(lambda: ensure_packages(client, base, requirements, announce, again=again)).name

    def prepared(self) -> list[Prepared]:
        """The images with packages, by name."""
        connection = self._connection
        return connection.call(lambda: packaged_images(connection.client, self._engine.name))

    def discard(self, prepared: Prepared) -> str:
        """Remove an image with packages; returns why that cannot be, empty if it was done."""
        connection = self._connection
        return connection.call(lambda: remove_packaged(connection.client, prepared.name))


class EnvironmentPackages(_Store):
    """Virtual environments over the lab's own Python."""

    def name_of(self, image: str | None, requirements: Sequence[str]) -> str:
        """The folder of the environment."""
        return str(environment_for(requirements))

    def prepare(
        self, image: str | None, requirements: Sequence[str], *, announce: Announce, again: bool = False
    ) -> str:
        """Make ready the virtual environment of nodes with these packages; returns its folder."""
        if image is not None:
            raise ClusterUnfit(
                f"the {self._engine.name} engine adds no packages to images, so not to {image}", "leave the image out"
            )
        return str(ensure_environment(requirements, announce, again=again))

    def prepared(self) -> list[Prepared]:
        """The virtual environments, by name."""
        return [replace(one, engine=self._engine.name) for one in environments()]

    def discard(self, prepared: Prepared) -> str:
        """Remove a virtual environment; returns why that cannot be, empty if it was done."""
        return remove_environment(prepared.name)
