from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Iterator

import pytest

from lab.features.functions.on_node.calls import ShippedModule, ShippedModuleFinder

FILES = {"lent_pkg/__init__.py": "from lent_pkg.inner import two\n", "lent_pkg/inner.py": "def two():\n    return 2\n"}


@pytest.fixture
def asked() -> Iterator[list[str]]:
    asked: list[str] = []

    def ask(name: str) -> ShippedModule | None:
        asked.append(name)
        return ShippedModule(name, FILES, {"lent_pkg/inner.py": "src/inner.py"}) if name == "lent_pkg" else None

    lender = ShippedModuleFinder(ask)
    sys.meta_path.append(lender)
    yield asked
    sys.meta_path.remove(lender)
    for name in [name for name in sys.modules if name.startswith("lent_")]:
        del sys.modules[name]


def test_a_module_that_is_lacking_is_asked_for_once_and_imported(asked: list[str]) -> None:
    module = importlib.import_module("lent_pkg")
    assert module.two() == 2
    assert asked == ["lent_pkg"]


def test_what_nobody_has_is_missing_as_ever(asked: list[str]) -> None:
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="lent_missing"):
            importlib.import_module("lent_missing")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("lent_pkg.missing")
    assert asked == ["lent_missing", "lent_pkg"]


def test_the_callers_own_code_is_where_the_caller_has_it_and_shows_its_lines(asked: list[str]) -> None:
    inner = importlib.import_module("lent_pkg.inner")
    assert inner.two.__code__.co_filename == "src/inner.py"
    assert linecache.getline("src/inner.py", 2, vars(inner)) == "    return 2\n"
    assert importlib.import_module("lent_pkg").__file__ == "<lent>/lent_pkg/__init__.py"


def test_what_the_node_has_is_not_asked_for(asked: list[str]) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("json.missing")
    assert asked == []
