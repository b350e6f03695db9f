"""Which line is said to have led to a call."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from lab.node.recorder.journal import Source, qualified_name

SCRIPT = """
def helper(call):
    return call()

def main(call):
    return helper(call)

place = main(call)
"""
HIDDEN = """
def all_reduce(ask):
    return wrapper(ask)

def wrapper(ask):
    return ask()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "work"


@pytest.fixture
def source(folder: Path, tmp_path: Path) -> Source:
    source = Source()
    source.start(str(folder), [str(tmp_path / "packages"), str(Path(__file__).parent)])
    return source


def compiled(text: str, path: Path) -> CodeType:
    return compile(text, str(path), "exec")


def place_of(source: Source, path: Path, tmp_path: Path) -> dict[str, Any]:
    """What is said of a call in a script at a path, through a function of an installed package."""
    package: dict[str, Any] = {}
    exec(compiled(HIDDEN, tmp_path / "packages" / "torch" / "distributed.py"), package)
    call: Callable[[], Any] = lambda: package["all_reduce"](source.locate)  # noqa: E731 - not a frame with a name
    names: dict[str, Any] = {"call": call}
    exec(compiled(SCRIPT, path), names)
    return dict(names["place"])


def test_it_is_the_innermost_line_of_the_scripts_folder(source: Source, folder: Path, tmp_path: Path) -> None:
    place = place_of(source, folder / "models" / "toy.py", tmp_path)
    assert place == {"at": "models/toy.py:3", "fn": "helper", "via": "all_reduce", "by": "models/toy.py:6"}


def test_where_nothing_is_in_that_folder_it_is_the_innermost_that_is_not_installed(
    source: Source, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere" / "train.py"
    assert place_of(source, elsewhere, tmp_path)["at"] == f"{elsewhere}:3"


def test_code_in_installed_packages_is_never_the_script(source: Source, tmp_path: Path) -> None:
    source.start("/nowhere", [str(tmp_path), str(Path(__file__).parent), "/"])
    assert place_of(source, tmp_path / "packages" / "train.py", tmp_path) == {}


def test_two_calls_of_one_line_are_on_that_line_and_others_are_not(source: Source, folder: Path) -> None:
    names: dict[str, Any] = {"ask": source.locate}
    exec(compiled("places = [ask(), ask()]; more = [ask()\n, ask()\n]", folder / "train.py"), names)
    places = [*names["places"], *names["more"]]
    assert [place["at"] for place in places] == [*["train.py:1"] * 3, "train.py:2"]


@pytest.mark.parametrize("waits", [True, False])
def test_a_thread_that_the_main_thread_waits_for_in_backward_has_its_line(
    source: Source, folder: Path, waits: bool
) -> None:
    """Autograd runs the backward pass of a GPU in a thread of its own, which has no frame of the script."""
    source.start(str(folder), [str(Path(__file__).parent), str(Path(threading.__file__).parent)])
    came, ended, places = threading.Lock(), threading.Lock(), list[dict[str, str]]()

    def _engine_run_backward() -> None:
        came.release()
        ended.acquire()

    def locate() -> None:
        came.acquire()
        time.sleep(0.1)  # until the main thread waits
        places.append(source.locate())
        ended.release()

    came.acquire()
    ended.acquire()
    thread = threading.Thread(target=locate)
    thread.start()
    wait = _engine_run_backward if waits else lambda: (came.release(), ended.acquire())
    exec(compiled("wait()", folder / "train.py"), {"wait": wait})
    thread.join()

    assert [place.get("at") for place in places] == ["train.py:1" if waits else None]


def here() -> FrameType:
    return sys._getframe(1)


def wrapped(function: Callable[..., FrameType]) -> Callable[..., FrameType]:
    @functools.wraps(function)
    def wrapper(*arguments: object) -> FrameType:
        return function(*arguments)

    return wrapper


class Model:
    def forward(self) -> FrameType:
        return here()

    @wrapped
    def backward(self) -> FrameType:
        return here()

    @staticmethod
    def setup() -> FrameType:
        return here()


def forward() -> FrameType:
    return here()


def test_without_the_names_of_python_3_11_a_method_has_the_name_of_its_class() -> None:
    frames = [forward(), Model().forward(), Model().backward(), Model.setup()]
    assert [qualified_name(frame) for frame in frames] == ["forward", "Model.forward", "Model.backward", "Model.setup"]
    assert "<" in qualified_name(wrapped(lambda: here().f_back)())
