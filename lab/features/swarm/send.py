"""Sending an image from one engine to another, where there is no registry: the layers that are missing there."""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any

from lab.engine.docker.image import inspect_image
from lab.errors import ImageError
from lab.words import format_bytes, listing

if TYPE_CHECKING:
    import docker

_CHUNK_BYTES = 1 << 20
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

    def without(self, layers: int) -> Iterator[bytes]:
        """The tar without what is in this many of the lowest layers; an engine that has those looks for no more."""
        with tarfile.open(self._file.name, mode="r:") as tar:
            left_out = set(json.loads(_content(tar, _MANIFEST))[0]["Layers"][:layers])
            for entry in tar:
                if entry.name not in left_out:
                    yield from _entry(tar, entry)
        yield bytes(2 * tarfile.BLOCKSIZE)

    def size_without(self, layers: int) -> int:
        """How many bytes that is."""
        with tarfile.open(self._file.name, mode="r:") as tar:
            left_out = set(json.loads(_content(tar, _MANIFEST))[0]["Layers"][:layers])
            return sum(entry.size for entry in tar if entry.name not in left_out)


def layers_there(client: docker.DockerClient, layers: Sequence[str]) -> int:
    """How many of the lowest of these layers an engine has: those that it shares with any image that is there."""
    most = 0
    for image in client.api.images():
        has = client.api.inspect_image(image["Id"])["RootFS"].get("Layers") or []  # type: ignore[no-untyped-call]
        alike = next(
            (at for at, (a, b) in enumerate(zip(has, layers, strict=False)) if a != b), min(len(has), len(layers))
        )
        most = max(most, alike)
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
    size, sent, parts = saved.size_without(layers), 0, _Parts(tell)

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        for piece in saved.without(layers):
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


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()


def _entry(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> Iterator[bytes]:
    yield entry.tobuf(format=tarfile.GNU_FORMAT)
    if not entry.isreg():
        return
    file: Any = tar.extractfile(entry) or BytesIO()
    while data := file.read(_CHUNK_BYTES):
        yield data
    yield bytes(-entry.size % tarfile.BLOCKSIZE)
