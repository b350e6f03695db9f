"""Something is done to a module when it is imported, and nothing is imported for it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.node.recorder import patching

MODULE = "a_module_of_the_test"


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / f"{MODULE}.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("sys.meta_path", list(sys.meta_path))
    yield
    sys.modules.pop(MODULE, None)


def test_it_waits_for_the_import_and_sees_the_whole_module() -> None:
    seen: list[int] = []
    patching.when_imported(MODULE, lambda module: seen.append(module.value))
    patching.when_imported(MODULE, lambda module: seen.append(module.value + 1))
    assert MODULE not in sys.modules
    importlib.import_module(MODULE)
    assert seen == [1, 2]


def test_a_module_that_is_imported_is_acted_on_at_once() -> None:
    importlib.import_module(MODULE)
    seen: list[int] = []
    patching.when_imported(MODULE, lambda module: seen.append(module.value))
    assert seen == [1]


def test_a_module_that_does_not_exist_is_missed_as_ever() -> None:
    patching.when_imported("no_such_module_of_the_test", lambda _: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_of_the_test")
