"""Sending an image: only the layers that are missing, against clients that only keep what they get."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest
from docker.errors import ImageNotFound

from lab.errors import ImageError
from lab.features.swarm.images import SavedImage, layers_there, send
from tests.golden import golden

LAYERS = ["sha256:a", "sha256:b", "sha256:c"]


class Api:
    """An engine with images that have these layers; refuses a tar without the content of one that it lacks."""

    def __init__(self, *images: list[str], whole_only: bool = False) -> None:
        self.has = [list(layers) for layers in images]
        self.whole_only = whole_only
        self.taken: list[list[str]] = []

    @property
    def api(self) -> Api:
        return self

    def images(self) -> list[dict[str, Any]]:
        return [{"Id": str(number)} for number in range(len(self.has))]

    def inspect_image(self, image: str) -> dict[str, Any]:
        if image == "i" and LAYERS not in self.has:
            raise ImageNotFound("no such image")
        layers = LAYERS if image == "i" else self.has[int(image)]
        return {"Id": "sha256:i", "Size": 3000, "RootFS": {"Layers": layers}, "Config": {}}

    def get_image(self, image: str, chunk: int) -> Iterator[bytes]:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            names = [f"{layer[-1]}/layer.tar" for layer in LAYERS]
            for name in names:
                add(tar, name, name.encode() * 1000)
            add(tar, "manifest.json", json.dumps([{"Config": "i.json", "Layers": names}]).encode())
        yield buffer.getvalue()

    def load_image(self, pieces: Iterable[bytes], quiet: bool) -> Iterator[dict[str, str]]:
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces)), mode="r:") as tar:
            names = [entry.name for entry in tar]
            assert all(tar.extractfile(name).read(7) for name in names)  # type: ignore[union-attr]
        self.taken.append(names)
        missing = 3 - sum(name.endswith("layer.tar") for name in names)
        if missing > (0 if self.whole_only else layers_there(self, LAYERS)):  # type: ignore[arg-type]
            yield {"error": "no such file"}
            return
        self.has.append(LAYERS)


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def sent_to(target: Any) -> list[str]:
    told: list[str] = []
    with closing(SavedImage(Api(LAYERS), "i")) as saved:  # type: ignore[arg-type]
        send(saved, target, told.append)
    return told


def test_an_engine_that_has_nothing_gets_all_of_it_and_is_told_how_far_that_is():
    target = Api()
    told = sent_to(target)
    assert target.taken == [["a/layer.tar", "b/layer.tar", "c/layer.tar", "manifest.json"]]
    assert told


def test_layers_that_it_has_by_another_image_are_not_sent():
    target = Api(["sha256:a", "sha256:b", "sha256:z"], ["sha256:x"])
    sent_to(target)
    assert target.taken == [["c/layer.tar", "manifest.json"]]


@pytest.mark.parametrize(
    ("images", "count"),
    [([], 0), ([["sha256:b"]], 0), ([["sha256:a"]], 1), ([LAYERS], 3), ([[*LAYERS, "sha256:d"]], 3)],
)
def test_only_layers_that_lie_upon_the_same_ones_are_the_same(images: list[list[str]], count: int):
    assert layers_there(Api(*images), LAYERS) == count  # type: ignore[arg-type]


def test_an_engine_that_wants_all_of_it_gets_all_of_it():
    target = Api(["sha256:a"], whole_only=True)
    sent_to(target)
    assert [len(names) for names in target.taken] == [3, 4]


def test_an_engine_that_does_not_take_it_is_told_of():
    class Full(Api):
        def load_image(self, pieces: Iterable[bytes], quiet: bool) -> Iterator[dict[str, str]]:
            b"".join(pieces)
            yield {"error": "no space left on device"}

    with pytest.raises(ImageError, match=golden(1)):
        sent_to(Full())
