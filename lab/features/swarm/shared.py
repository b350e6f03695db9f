"""The folder that all nodes of a cluster see as /shared, in a folder that is the same on all hosts."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from lab.engine.docker.connection import Connection
from lab.engine.docker.direct import Refused

_PLACE = "/all"
_DEADLINE_S = 60


def make_shared(connection: Connection, image: str, folder: str, cluster: str, labels: Mapping[str, str]) -> None:
    """Make the folder of a cluster, by a container that never runs: who asks may be on another machine."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo(cluster)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(entry)
    container = _container(connection, image, folder, labels, ["true"])
    try:
        connection.call(lambda: connection.api.put_archive(container, _PLACE, archive.getvalue()))
    finally:
        _remove(connection, container)


def remove_shared(
    connection: Connection, image: str, folder: str, clusters: Sequence[str], labels: Mapping[str, str]
) -> None:
    """Remove the folders of clusters, where they are."""
    command = ["rm", "-rf", "--", *(f"{_PLACE}/{cluster}" for cluster in clusters)]
    container = _container(connection, image, folder, labels, command)
    try:
        connection.start(container)
        connection.call(lambda: connection.api.wait(container, timeout=_DEADLINE_S))
    finally:
        _remove(connection, container)


def _container(
    connection: Connection, image: str, folder: str, labels: Mapping[str, str], command: Sequence[str]
) -> str:
    body: dict[str, Any] = {
        "Image": image,
        "Entrypoint": list(command),
        "User": "0:0",
        "Labels": dict(labels),
        "HostConfig": {"Binds": [f"{folder}:{_PLACE}"], "NetworkMode": "none", "LogConfig": {"Type": "none"}},
    }
    return str(connection.ask("POST", "/containers/create", body)["Id"])


def _remove(connection: Connection, container: str) -> None:
    with suppress(Refused):
        connection.ask("DELETE", f"/containers/{container}?force=1&v=1")
