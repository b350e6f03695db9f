"""The image of the nodes, from a registry or sent, on every host that may get one; and the folder that nodes share."""

from __future__ import annotations

import fcntl
import io
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any

from lab.engine.docker.connection import Connection, Refused
from lab.engine.docker.engine import DockerEngine
from lab.engine.docker.image import inspect_image
from lab.engine.ownership import state_folder
from lab.engine.protocol import Announce
from lab.errors import EngineUnavailable, ImageError
from lab.features.image.make import ensure_image, pull_image
from lab.features.swarm.hosts import Hosts
from lab.features.swarm.send import SavedImage, send
from lab.words import listing

_AT_ONCE = 4


def workbench(hosts: Hosts) -> DockerEngine:
    """The engine on which images are made: the one that the docker command line would use, or else the manager's."""
    try:
        return DockerEngine()
    except EngineUnavailable:
        return DockerEngine(connection=hosts.manager.connection)


def ensure_on_all(hosts: Hosts, names: Sequence[str], image: str, announce: Announce) -> str:
    """Have an image on all of these hosts; returns its id, which is the same on each.

    Raises:
        LabError: it cannot be made or had, or a host does not take it.
    """
    engines = {name: hosts.engine(name).connection for name in names}
    with _one_command_at_a_time(announce):
        return _ensure(hosts, engines, image, announce)


@contextmanager
def _one_command_at_a_time(announce: Announce) -> Iterator[None]:
    """Let nobody send what somebody is just sending."""
    path = state_folder() / "swarm-images.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            announce("waiting for another command, which looks after the images of hosts")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _ensure(hosts: Hosts, engines: Mapping[str, Connection], image: str, announce: Announce) -> str:
    there = {name: found.id for name, engine in engines.items() if (found := inspect_image(engine.client, image))}
    bench = workbench(hosts).connection
    if inspect_image(bench.client, image) is None and there:
        bench = engines[next(iter(there))]
    wanted = ensure_image(bench.client, image, lambda progress: announce(progress.text)).id
    missing = {name: engine for name, engine in engines.items() if there.get(name) != wanted}
    if missing and bench.api.inspect_image(image).get("RepoDigests"):  # type: ignore[no-untyped-call]
        missing = {
            name: engine for name, engine in missing.items() if not _pulled(engine, name, image, wanted, announce)
        }
    if missing:
        _send(bench, missing, image, announce)
    return wanted


def _pulled(engine: Connection, host: str, image: str, wanted: str, announce: Announce) -> bool:
    """Whether a host has taken an image from its registry."""
    try:
        return pull_image(engine.client, image, lambda progress: announce(f"{host}: {progress.text}")).id == wanted
    except ImageError as error:
        announce(f"{host} cannot pull {image}, so it is sent there: {error.message}")
        return False


def _send(source: Connection, targets: Mapping[str, Connection], image: str, announce: Announce) -> None:
    one_at_a_time = threading.Lock()

    def tell(text: str) -> None:
        with one_at_a_time:
            announce(text)

    tell(f"image {image} is to be sent to {listing(targets)}")
    with closing(SavedImage(source.client, image, lambda done: tell(f"reading image {image}: {done}"))) as saved:

        def one(host: str) -> None:
            send(saved, targets[host].client, lambda done: tell(f"sending image {image} to {host}: {done}"))
            tell(f"image {image} is on {host}")

        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            list(pool.map(one, targets))


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
        connection.act(container, "start")
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
