"""The replacement of torch's MultiProcessTestCase on a rank."""

from __future__ import annotations

import os
import unittest
from contextlib import suppress
from typing import Any

_files: list[str] = []
"""Process groups of finished test cases, and of the current one."""


class RankCase(unittest.TestCase):
    """A test on a rank; there is no process group yet, and `file_name` is a file of all ranks, for a store."""

    rank: int = -1
    file_name: str = ""

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return int(os.environ["WORLD_SIZE"])

    def _spawn_processes(self) -> None:
        """Do nothing, because the ranks exist."""

    def assertEqual(self, first: Any, second: Any, msg: Any = None, **tolerance: Any) -> None:  # noqa: N802
        """Compare as torch's tests do: tensors, also in containers, have to be close."""
        import torch

        if _holds_tensors(first, torch.Tensor) or _holds_tensors(second, torch.Tensor):
            exact = {"check_device": False, "check_layout": False, "check_dtype": tolerance.pop("exact_dtype", True)}
            torch.testing.assert_close(first, second, **exact, **tolerance, equal_nan=True, msg=msg)
        elif tolerance and isinstance(first, (int, float)):
            torch.testing.assert_close(first, second, **tolerance, msg=msg)
        else:
            super().assertEqual(first, second, msg)  # noqa: PT009


def _holds_tensors(value: Any, kind: type) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_holds_tensors(item, kind) for item in value)
    return isinstance(value, kind)


def run_case(kind: type, name: str, file_name: str) -> None:
    """Run one test of a class on this rank.

    Args:
        kind: The class.
        name: Of the method.
        file_name: Of a file that does not exist yet, without its folder.
    """
    while _files:
        with suppress(OSError):  # another rank was faster, or its store has removed it
            os.unlink(_files.pop())
    path = os.path.join(os.environ["LAB_SHARED"], file_name)
    _files.append(path)
    with suppress(OSError):  # another rank created it
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o666))
        os.chmod(path, 0o666)
    _meet_beyond_loopback()
    case = kind(name)
    case.rank, case.file_name = int(os.environ["RANK"]), path
    case.setUp()
    try:
        getattr(case, name)()
    finally:
        case.tearDown()
        case.doCleanups()


def _meet_beyond_loopback() -> None:
    """For tests that name the loopback interface, as torch's do, return the interface between nodes instead."""
    import torch.distributed as dist

    gloo: Any = dist.ProcessGroupGloo
    create = gloo.create_device
    if getattr(create, "__module__", "") == __name__:
        return

    def create_device(hostname: str = "", interface: str = "", **options: Any) -> Any:
        if interface == "lo" or hostname in ("localhost", "127.0.0.1"):
            return gloo.create_default_device()
        return create(hostname=hostname, interface=interface, **options)

    gloo.create_device = staticmethod(create_device)
