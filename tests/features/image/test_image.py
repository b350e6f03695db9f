"""Having the node image: found, built or pulled, against a client that only answers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest
import requests
from docker.errors import APIError

from lab.engine.docker.connection import Connection, Refused
from lab.engine.docker.image import DEFAULT_IMAGE, ensure_image
from lab.errors import EngineUnavailable, ImageError
from lab.features.image import make as subject
from lab.features.image.make import build_image, plan_build, pull_image
from tests.golden import golden


class Engine:
    """The part of a connection, and of docker-py's low-level client, that images need; answers from a script."""

    call = Connection.call

    def __init__(self, images: set[str] = frozenset(), build: Any = (), pull: Any = ()) -> None:  # type: ignore[assignment]
        self.api = self
        self.images = set(images)
        self.ids: dict[str, str] = {}
        self.scripts = {"build": list(build), "pull": list(pull)}
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def ask(self, method: str, path: str) -> dict[str, Any]:
        image = unquote(path.removeprefix("/images/").removesuffix("/json"))
        if image.startswith(("0123", "sha256:")):
            return {"RepoTags": ["kept:1"] if image == "sha256:kept" else []}
        if image not in self.images:
            raise Refused(404, "no such image")
        return {"Id": self.ids.get(image, "sha256:1"), "Size": 5, "Config": {"Labels": {"lab.image.torch": "2.13.0"}}}

    def request(self, method: str, path: str) -> None:
        self.calls.append((method, {"image": path.removeprefix("/images/")}))

    def build(self, **asked: Any) -> Iterator[dict[str, Any]]:
        asked["sent"] = sum(len(piece) for piece in asked.pop("fileobj"))
        self.calls.append(("build", asked))
        yield from self.scripts["build"]
        self.images.add(asked["tag"])
        self.ids[asked["tag"]] = "sha256:new"

    def pull(self, image: str, **asked: Any) -> Iterator[dict[str, Any]]:
        self.calls.append(("pull", asked))
        answer = self.scripts["pull"].pop(0)
        if isinstance(answer, Exception):
            raise answer
        yield from answer
        if not any("error" in event for event in answer):
            self.images.add(image)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LAB_IMAGE_BASE", "LAB_IMAGE_WHEELS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)


def client(**scripts: Any) -> Any:
    return Engine(**scripts)


def test_an_image_that_is_there_is_neither_built_nor_pulled():
    engine = client(images={"x:1"})
    assert ensure_image(engine, "x:1", print).torch == "2.13.0"
    assert engine.api.calls == []


def test_the_default_image_is_built_if_it_is_missing():
    engine = client()
    assert ensure_image(engine, DEFAULT_IMAGE, print).name == DEFAULT_IMAGE
    ((verb, asked),) = engine.api.calls
    assert verb == "build"
    assert asked["tag"] == DEFAULT_IMAGE
    assert set(asked["labels"]) == {"org.opencontainers.image.version"}
    assert asked["sent"] > 512


def test_any_other_image_is_pulled_if_it_is_missing():
    engine = client(pull=[[{"status": "Pulling fs layer", "id": "a"}, {"status": "Pull complete", "id": "a"}]])
    shown: list[str] = []
    assert ensure_image(engine, "x:1", shown.append).id == "sha256:1"
    assert shown == [golden(1), golden(2)]


def test_a_build_removes_the_image_of_its_first_stage():
    events = [
        {"stream": " ---> 0123456789ab\n"},
        {"stream": "Step 2/3 : FROM base\n"},
        {"stream": " ---> 1123456789ab\n"},
    ]
    engine = client(build=events)
    build_image(engine, plan_build(), print)
    assert engine.api.calls[-1] == ("DELETE", {"image": "0123456789ab"})


@pytest.mark.parametrize(("old", "removed"), [("sha256:old", True), ("sha256:kept", False), ("sha256:new", False)])
def test_a_build_removes_the_image_it_replaces_unless_that_has_another_name(old: str, removed: bool):
    engine = client(images={DEFAULT_IMAGE})
    engine.api.ids[DEFAULT_IMAGE] = old
    build_image(engine, plan_build(), print)
    assert (("DELETE", {"image": old}) in engine.api.calls) == removed


def test_a_failed_build_names_the_step_and_shows_the_last_lines():
    events = [
        {"stream": "Step 3/9 : RUN x\n"},
        {"stream": "boom\n"},
        {"error": "The command 'x' returned a non-zero code: 7"},
    ]
    with pytest.raises(ImageError, match=golden(1)):
        build_image(client(build=events), plan_build(), print)


def test_a_lost_connection_to_the_registry_is_tried_again():
    engine = client(pull=[[{"error": "unexpected EOF"}], APIError("x", explanation="i/o timeout"), [{"status": "ok"}]])
    shown: list[str] = []
    pull_image(engine, "x:1", shown.append)
    assert shown == [
        golden(1),
        golden(2),
    ]


def test_tries_end():
    engine = client(pull=[[{"error": "unexpected EOF"}]] * 9)
    with pytest.raises(ImageError, match=golden(1)):
        pull_image(engine, "x:1", print)
    assert len(engine.api.calls) == subject.PULL_ATTEMPTS


def test_a_refusal_of_the_registry_is_final():
    engine = client(pull=[[{"error": "manifest unknown"}]])
    with pytest.raises(ImageError, match="manifest unknown"):
        pull_image(engine, "x:1", print)


def test_an_engine_that_goes_away_is_not_the_images_fault():
    engine = client(pull=[requests.ConnectionError("gone")])
    with pytest.raises(EngineUnavailable, match=golden(1)):
        pull_image(engine, "x:1", print)


def test_an_engine_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject, "SILENT_S", 0.05)
    release = threading.Event()

    def never(image: str, **asked: Any) -> Iterator[dict[str, Any]]:
        release.wait(30)
        yield {}

    engine = client()
    engine.api.pull = never
    with pytest.raises(ImageError, match=golden(1)):
        pull_image(engine, "x:1", print)
    release.set()


def test_silence_between_events_counts_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject, "SILENT_S", 0.05)
    release = threading.Event()

    def stop(image: str, **asked: Any) -> Iterator[dict[str, Any]]:
        yield {"status": "Pulling fs layer", "id": "a"}
        release.wait(30)

    engine = client()
    engine.api.pull = stop
    shown: list[str] = []
    with pytest.raises(ImageError, match=golden(1)):
        pull_image(engine, "x:1", shown.append)
    assert len(shown) == 1
    release.set()


def test_importing_the_module_imports_no_docker():
    heavy = ("docker", "tenacity", "rich", "tarfile")
    code = f"import lab.features.image.make, sys; sys.exit(any(module in sys.modules for module in {heavy}))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
