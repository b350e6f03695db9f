from __future__ import annotations

import io
import pickle
import threading
import unittest
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.errors import UsageError
from lab.features.functions.answers import build_error, read_value
from lab.features.functions.on_node.messages import Failure, write_value
from lab.features.functions.pack import CallOptions, Packed, pack_call
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
