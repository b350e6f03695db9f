"""The base of torch's own distributed tests, on ranks of the lab: a class for it runs here with another import.

from lab.testing.cases import MultiProcessTestCase  # from torch.testing._internal.common_distributed import ...
"""

from __future__ import annotations

import functools
import os
import unittest
from collections.abc import Callable
from typing import Any, ClassVar

from lab.features.functions.distributed import call_on_ranks
from lab.features.functions.pack import IN_NODE, ORIGINAL, How


class MultiProcessTestCase(unittest.TestCase):
    """Runs each `test_*` method on as many ranks as `world_size` says, each on a node of its own.

    There, `setUp`, the method and `tearDown` find `rank`, `world_size`, `file_name` (for a store that all ranks have)
    and an `assertEqual` for tensors, and no process group yet, as with torch's class.
    """

    world_size: int = 4
    engine: ClassVar[Any] = None
    """`docker` or `local`; None: what is there."""
    timeout_s: ClassVar[float] = 60.0
    """How long a test may take before it is hung."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        for name, method in list(vars(cls).items()):
            if name.startswith("test") and callable(method):
                setattr(cls, name, _on_ranks(method))

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Run the test; what `setUp` and `tearDown` do is for the ranks."""
        for name in ("setUp", "tearDown"):
            setattr(self, name, lambda: None)
        return super().run(result)

    def _spawn_processes(self) -> None:
        """There are ranks already."""


setattr(MultiProcessTestCase, IN_NODE, "labnode.features.functions.on_node.torch_case:RankCase")


def _on_ranks(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that has every rank make its own object of the class, and run that method of it."""

    @functools.wraps(method)
    def on_ranks(self: MultiProcessTestCase) -> None:
        __tracebackhide__ = True
        arguments = (type(self), method.__name__, f"store-{os.urandom(8).hex()}")
        said: dict[str, Any] = {"nodes": self.world_size, **({"engine": self.engine} if self.engine else {})}
        how = How(timeout_s=self.timeout_s, backend="", wanted=False)
        call_on_ranks(_run_case, arguments, {}, said, how, test=None, shown=method)

    vars(on_ranks)[ORIGINAL] = method
    return on_ranks


def _run_case(kind: type, name: str, file_name: str) -> None:
    """On ranks, what stands for it is called."""


setattr(_run_case, IN_NODE, "labnode.features.functions.on_node.torch_case:run_case")
