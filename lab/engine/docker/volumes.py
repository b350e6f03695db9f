"""Where volumes may be in a container: never over or in what the node itself runs on, or in one another."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from lab.engine.docker.direct import Refused
from lab.errors import ClusterUnfit
from lab.plan.cluster import Shape

if TYPE_CHECKING:
    from lab.engine.docker.connection import Connection

SHARED = "/shared"
DATA = "/data"
_FOR_FILES = frozenset(
    [
        "data",
        "datasets",
        "home",
        "input",
        "inputs",
        "media",
        "mnt",
        "models",
        "output",
        "outputs",
        "projects",
        "results",
        "scratch",
        "srv",
        "work",
        "workspace",
    ]
)
"""Folders of an image in which volumes may be: people put files there, and few put programs."""
_PATHS = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables of an image that name what its programs are made of."""
_ABSENT = 404
_BELOW = "mount it in /data, /mnt or another folder that the image does not have"


def refuse_targets(shape: Shape) -> None:
    """Refuse volumes over what every node runs on, and volumes in others, whose files may be links to elsewhere.

    Raises:
        ClusterUnfit: it names the volume.
    """
    if not shape.volumes:
        return
    from lab.spec.volumes import own_folder, plain_target  # few clusters have any

    for volume in shape.volumes:
        if ":" in f"{volume.source}{volume.target}":
            raise ClusterUnfit(
                f"volume {volume} cannot be mounted: its path has a colon, where the engine ends a path",
                "mount a folder without a colon in its path",
            )
        problem = own_folder(plain_target(posixpath.normpath(volume.target)))
        if problem and not (str(volume.source) == volume.target and volume.target.startswith("/tmp/")):
            raise ClusterUnfit(f"volume {volume} cannot be mounted: {problem}", _BELOW)
    targets = [PurePosixPath(target) for target in (*(one.target for one in shape.volumes), *_data_targets(shape))]
    for outer in targets:
        inner = next((one for one in targets if one != outer and one.is_relative_to(outer)), None)
        if inner is not None:
            raise ClusterUnfit(
                f"volume {inner} cannot be mounted: it lies in {outer}, which is a volume too",
                "mount them beside each other",
            )


def _data_targets(shape: Shape) -> list[str]:
    return [f"{DATA}/{name}" for name in shape.data]


def refuse_volumes_over_programs(connection: Connection, image: str, shape: Shape) -> None:
    """Refuse volumes over folders that an image has besides those for files, and over what its programs are made of.

    Raises:
        ClusterUnfit: it names the volume and the folder.
    """
    facts = connection.call(lambda: connection.api.inspect_image(image))  # type: ignore[no-untyped-call]
    programs = _program_folders((facts.get("Config") or {}).get("Env") or ())
    created = connection.call(
        lambda: connection.api.create_container(image, command=["true"], entrypoint=[], network_disabled=True)
    )
    try:
        for volume in shape.volumes:
            target = PurePosixPath(volume.target)
            top = target.parts[1]
            hidden = next((one for one in programs if one.is_relative_to(target) or target.is_relative_to(one)), None)
            if hidden is None and top not in _FOR_FILES and _has(connection, created["Id"], f"/{top}"):
                hidden = PurePosixPath(f"/{top}")
            if hidden is not None:
                raise ClusterUnfit(f"volume {volume} cannot be mounted: the image {image} has {hidden}", _BELOW)
    finally:
        connection.call(lambda: connection.api.remove_container(created["Id"], v=True, force=True))


def _program_folders(environment: Any) -> list[PurePosixPath]:
    """Folders that the environment of an image names; of `/venv/bin` in PATH, all of `/venv`."""
    variables: Mapping[str, str] = dict(one.partition("=")[::2] for one in environment)
    found = []
    for name in _PATHS:
        for entry in variables.get(name, "").replace(" ", ":").split(":"):
            path = PurePosixPath(entry)
            if path.is_absolute() and len(path.parts) > 1:
                found.append(path.parent if path.name in ("bin", "sbin") and len(path.parts) > 2 else path)
    return found


def _has(connection: Connection, container: str, path: str) -> bool:
    """Whether a container has a file or folder."""
    try:
        connection.call(lambda: connection.api.get_archive(container, path))[0].close()
    except Refused as refused:
        if refused.status == _ABSENT:
            return False
        raise
    return True
