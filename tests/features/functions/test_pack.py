from __future__ import annotations

import io
import pickle
import sys
import threading
import unittest
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from lab.errors import UsageError
from lab.features.functions.answers import build_error, read_value
from lab.features.functions.on_node.messages import Failure, write_value
from lab.features.functions.pack import CallOptions, Packed, find_modules, pack_call
from tests.golden import golden


def sent(function: Any, *arguments: Any, **named: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    body = io.BytesIO(pack_call(Packed("/"), function, arguments, named, CallOptions()))
    pickle.load(body)
    return pickle.load(body)  # type: ignore[no-any-return]


class Case(unittest.IsolatedAsyncioTestCase):
    __test__ = False  # it is run below

    def test_it(self) -> None:
        self.found = sent(Case.look, self)

    def look(self) -> None:
        with self.subTest("one"):
            pass


def test_a_test_of_unittest_is_sent_without_who_runs_it() -> None:
    case = Case("test_it")
    case.test_it = case.test_it  # type: ignore[method-assign] # as pytest does
    case.extra = 4  # type: ignore[attr-defined]
    case.addCleanup(threading.Lock().acquire)
    result = unittest.TestResult()
    result.stream = threading.Lock()  # type: ignore[attr-defined] # what cannot be pickled
    elsewhere = threading.Thread(
        target=case.run, args=(result,)
    )  # in this thread a loop of another test may be running
    elsewhere.start()
    elsewhere.join()
    assert result.wasSuccessful(), result.errors
    function, (there,), _ = case.found
    function(there)
    assert (there.extra, there._testMethodName) == (4, "test_it")


def takes(x: int, handle: object, *more: object, key: object = None) -> None:
    pass


def test_an_argument_that_cannot_be_sent_is_named(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        for name, arguments, named in (
            ("handle", (1, file), {}),
            ("key", (1, 2), {"key": file}),
            ("more", (1, 2, file), {}),
        ):
            with pytest.raises(UsageError, match=golden(1, name)):
                sent(takes, *arguments, **named)
        with pytest.raises(UsageError, match=golden(2)):
            sent(lambda: file)


def test_classes_that_travel_by_value_are_noted_for_what_comes_back() -> None:
    @dataclass
    class Mine:
        x: int

    class Wrong(Exception):
        pass

    def function() -> object:
        return Mine(1), Wrong

    packed = Packed("/")
    pack_call(packed, function, (), {}, CallOptions())
    written = write_value(Mine(3), 1 << 20)
    assert read_value(written, packed.classes) == Mine(3)
    failure = Failure(Wrong.__module__, "Wrong", "text", ())  # as cloudpickle makes it
    assert isinstance(build_error({0: failure}, {}, classes=packed.classes, record=None), Wrong)
    assert (Path.__module__, Path.__qualname__) not in packed.classes


def test_own_modules_of_a_script_are_those_that_it_imports_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the layout of a library: its code below src, a script that tests run, and modules of the tests next to it."""
    files = {
        "src/maintlib/__init__.py": "from maintlib.ring import ring\nimport maintlib_helper as helper, json",
        "src/maintlib/ring.py": "def ring():\n    import maintspace.part",
        "src/maintlib/sizes.json": "{}",
        "src/maintlib/__pycache__/ring.cpython-311.pyc": "",
        "src/maintlib_helper.py": "",
        "src/maintspace/part.py": "",
        "src/maintspace/lazy.py": "import importlib\nimportlib.import_module('maintlazy')",
        "src/maintlazy.py": "import nowhere",
        "src/maintunused.py": "",
        "tests/train.py": "import torch, tests_model\nfrom lab import note",
        "tests/tests_model.py": "try: import maintlib\nexcept ImportError: pass",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "src")
    modules = find_modules(tmp_path / "tests/train.py")
    own = ["maintlazy.py", "maintlib/__init__.py", "maintlib/ring.py", "maintlib/sizes.json", "maintlib_helper.py"]
    assert sorted(modules) == [*own, "maintspace/lazy.py", "maintspace/part.py"]
    assert all(path == tmp_path / "src" / name for name, path in modules.items())


def test_a_package_that_is_installed_as_editable_is_found_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/__init__.py").touch()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/train.py").write_text("import mainteditable")

    class Finder(MetaPathFinder):
        """As the one that setuptools installs for a package whose folder has another name."""

        def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
            init = tmp_path / "lib/__init__.py"
            return spec_from_file_location(fullname, init) if fullname == "mainteditable" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    modules = find_modules(tmp_path / "tests/train.py")
    assert modules == {"mainteditable/__init__.py": tmp_path / "lib/__init__.py"}
