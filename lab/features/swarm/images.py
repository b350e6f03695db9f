"""The image of the nodes, from a registry or sent, on every host that may get one; and the folder that nodes share."""

from __future__ import annotations

import fcntl
import json
import os
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import takewhile
from typing import IO, TYPE_CHECKING

from lab.engine.docker.connection import Connection
from lab.engine.docker.engine import DockerEngine
from lab.engine.docker.image import inspect_image
from lab.engine.ownership import state_folder
from lab.engine.protocol import Announce
from lab.errors import ClusterError, EngineUnavailable, ImageError
from lab.features.image.make import ensure_image, pull_image
from lab.features.swarm.hosts import Hosts
from lab.words import format_bytes, listing

if TYPE_CHECKING:
    import docker

_CHUNK_BYTES = 1 << 20
_DEADLINE_S = 60
_MANIFEST = "manifest.json"
_TOLD_PARTS = 10
Tell = Callable[[str], object]
"""Takes what has been done, such as `100 MB of 1.1 GB`."""


class SavedImage:
    """An image as `docker save` writes it, in a file that is gone when this is closed.

    Args:
        client: of an engine that has the image.
        image: its name.
        tell: called with how much has been read.
    """

    def __init__(self, client: docker.DockerClient, image: str, tell: Tell = lambda _: None) -> None:
        self.image = image
        self.layers: list[str] = list(client.api.inspect_image(image)["RootFS"]["Layers"])  # type: ignore[no-untyped-call]
        """What its layers hold, from the lowest up, each as a digest."""
        self._file: IO[bytes] = tempfile.NamedTemporaryFile(prefix="lab-image-")
        size, parts = int(client.api.inspect_image(image)["Size"]), _Parts(tell)  # type: ignore[no-untyped-call]
        for chunk in client.api.get_image(image, _CHUNK_BYTES):
            self._file.write(chunk)
            parts.reached(self._file.tell(), size)
        self._file.flush()

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def spans(self, layers: int) -> list[tuple[int, int]]:
        """The parts of the file without what is in this many of the lowest layers, which it is still a tar without."""
        with tarfile.open(self._file.name, mode="r:") as tar:
            manifest = tar.extractfile(_MANIFEST)
            assert manifest is not None
            left_out = set(json.load(manifest)[0]["Layers"][:layers])
            sizes = ((entry, entry.size if entry.isreg() else 0) for entry in tar if entry.name not in left_out)
            return [(entry.offset, entry.offset_data + size + -size % tarfile.BLOCKSIZE) for entry, size in sizes]

    def read(self, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """A tar of these parts; an engine that has the layers that they lack looks for no more."""
        with open(self._file.name, "rb") as file:
            for start, end in spans:
                for at in range(start, end, _CHUNK_BYTES):
                    yield os.pread(file.fileno(), min(_CHUNK_BYTES, end - at), at)
        yield bytes(2 * tarfile.BLOCKSIZE)


def layers_there(client: docker.DockerClient, layers: Sequence[str]) -> int:
    """How many of the lowest of these layers an engine has: those that it shares with any image that is there."""
    most = 0
    for image in client.api.images():
        has = client.api.inspect_image(image["Id"])["RootFS"].get("Layers") or []  # type: ignore[no-untyped-call]
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(has, layers, strict=False))
        most = max(most, len(list(alike)))
    return most


def send(saved: SavedImage, client: docker.DockerClient, tell: Tell) -> None:
    """Give an engine an image; of layers that it has, nothing is sent.

    Raises:
        ImageError: it does not take it.
    """
    there = layers_there(client, saved.layers)
    problem = _load(saved, client, there, tell)
    if problem and there:  # an engine that keeps layers in another way wants all of it
        problem = _load(saved, client, 0, tell)
    if problem:
        raise ImageError(f"image {saved.image} cannot be sent: {problem}")


def _load(saved: SavedImage, client: docker.DockerClient, layers: int, tell: Tell) -> str:
    """Returns what the engine says is wrong with it."""
    spans, sent = saved.spans(layers), 0
    size, parts = sum(end - start for start, end in spans), _Parts(tell)

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        for piece in saved.read(spans):
            yield piece
            sent += len(piece)
            parts.reached(sent, size)

    events = client.api.load_image(pieces(), quiet=True)  # type: ignore[no-untyped-call]
    said = [event["error"] for event in events if isinstance(event, dict) and "error" in event]
    there = inspect_image(client, saved.image)
    return listing(said) if said else "" if there is not None else "it was taken, and is not there"


class _Parts:
    """Tells of a tenth at a time."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._told = tell, 0

    def reached(self, done: int, size: int) -> None:
        part = _TOLD_PARTS * done // size if size else 0
        if part > self._told:
            self._told = part
            self._tell(f"{format_bytes(min(done, size))} of {format_bytes(size)}")


_AT_ONCE = 4


def workbench(hosts: Hosts) -> DockerEngine:
    """The engine on which images are made: the one that the docker command line would use, or else the manager's."""
    try:
        return DockerEngine()
    except EngineUnavailable:
        return DockerEngine(connection=hosts.manager)


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


def ensure_on_all(hosts: Hosts, names: Sequence[str], image: str, announce: Announce) -> str:
    """Have an image on all of these hosts; returns its id, which is the same on each.

    Raises:
        LabError: it cannot be made or had, or a host does not take it.
    """
    engines = {name: hosts.engine(name).connection for name in names}
    with _one_command_at_a_time(announce):
        there = {name: found.id for name, engine in engines.items() if (found := inspect_image(engine.client, image))}
        bench = workbench(hosts).connection
        if inspect_image(bench.client, image) is None and there:
            bench = engines[next(iter(there))]
        wanted = ensure_image(bench.client, image, lambda progress: announce(progress.text)).id
        missing = {name: engine for name, engine in engines.items() if there.get(name) != wanted}
        if missing and bench.api.inspect_image(image).get("RepoDigests"):  # type: ignore[no-untyped-call]
            for name, engine in list(missing.items()):
                if _pulled(engine, name, image, wanted, announce):
                    del missing[name]
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


def run_in_folder(
    connection: Connection, image: str, folder: str, command: Sequence[str], labels: Mapping[str, str]
) -> None:
    """Run a command on a folder of a host, which it sees as /all, in a container: who asks may be on another machine.

    Raises:
        ClusterError: it fails.
    """
    host = {"Binds": [f"{folder}:{_PLACE}"], "NetworkMode": "none", "LogConfig": {"Type": "json-file"}}
    own = {"Image": image, "Entrypoint": list(command), "User": "0:0", "Labels": dict(labels)}
    code, _, said = connection.run_container({**own, "HostConfig": host}, deadline_s=_DEADLINE_S)
    if code:
        raise ClusterError(f"{folder}, which nodes are to share, cannot be used: {said.strip()}", "see docs/swarm.md")
