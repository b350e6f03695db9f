"""Run functions on each rank of a cluster wherever they are called, and torch's distributed test cases."""

from __future__ import annotations

import functools
import inspect
import os
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, overload

from lab.errors import LabError, RanksFailed, UsageError
from lab.features.functions.answers import point_at_function
from lab.features.functions.pack import IN_NODE, ORIGINAL, CallOptions
from lab.frozen import Frozen

if TYPE_CHECKING:
    from lab.cluster import Cluster

SHAPE = "__lab_shape__"
"""Attribute of a decorated function: the shape of the cluster that it needs."""
FILLED = ("rank", "world_size", "group")
"""Parameters that each rank fills in: its rank, the world size, and the process group of all ranks."""
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def to_fill(signature: inspect.Signature) -> tuple[str, ...]:
    """Return the parameters that ranks fill in, unless the caller passes them."""
    needed = [one for one in signature.parameters.values() if one.default is one.empty and one.kind not in _REST]
    return tuple(one.name for one in needed if one.name in FILLED)


def remove_parameters(signature: inspect.Signature, filled: Sequence[str]) -> inspect.Signature:
    """Return the signature for the caller, without the filled parameters."""
    return signature.replace(parameters=[one for name, one in signature.parameters.items() if name not in filled])


F = TypeVar("F", bound=Callable[..., Any])


class Provided(Frozen):
    """What a test runner provides for the current test."""

    cluster: Callable[[Mapping[str, Any]], Cluster]
    """Returns the cluster for a shape, given as keywords."""
    how: CallOptions
    """Options of calls, except those of the function itself."""


_provided: list[Provided] = []


@contextmanager
def provide_clusters(provided: Provided) -> Iterator[None]:
    """Let functions use the clusters of a test runner until the block ends."""
    _provided.append(provided)
    try:
        yield
    finally:
        _provided.remove(provided)


@overload
def distributed(function: F, /) -> F: ...
@overload
def distributed(**options: Any) -> Callable[[F], F]: ...


def distributed(
    function: Callable[..., Any] | None = None,
    /,
    *,
    nodes: int | None = None,
    nproc_per_node: int | None = None,
    engine: str | None = None,
    backend: str = "gloo",
    timeout_s: float = 60.0,
    fresh: bool = False,
    **shape: Any,
) -> Any:
    """Have a function, or a test, run on every rank of a cluster, in a process group of all of them.

    Each rank fills in its parameters `rank`, `world_size`, and `group`. In a session of pytest it runs on the warm
    cluster of that shape; elsewhere on the cluster of the current folder, or on one that the call creates.
    Outside of pytest, it returns the return values by rank. For exceptions, see `Cluster.call`.

    Args:
        function: The function to decorate.
        nodes: Number of nodes; None: as in the marker `lab`, or 3.
        nproc_per_node: Ranks on each node.
        engine: `docker` or `local`; None: the available one.
        backend: Backend of the process group: `gloo`, `mpi`, or `nccl`.
        timeout_s: Seconds after which the call counts as hung.
        fresh: Start new ranks for it.
        shape: Further arguments of `Cluster`.
    """
    shape_fields = {"nodes": nodes, "nproc_per_node": nproc_per_node, "engine": engine, **shape}
    shape_fields = {name: value for name, value in shape_fields.items() if value is not None}
    own = CallOptions(backend=backend, timeout_s=timeout_s, fresh=fresh)

    def decorate(original: Callable[..., Any]) -> Callable[..., Any]:
        if not inspect.isfunction(original) or inspect.iscoroutinefunction(original):
            raise UsageError(
                f"@lab.distributed: {original!r} is not a plain function",
                "decorate a `def`; options have names: `(nodes=3)`",
            )
        signature = inspect.signature(original)
        filled = to_fill(signature)
        wanted = remove_parameters(signature, filled)
        how = replace(own, filled=filled)

        @functools.wraps(original)
        def on_ranks(*arguments: Any, **named: Any) -> list[Any] | None:
            __tracebackhide__ = True
            try:
                wanted.bind(*arguments, **{name: value for name, value in named.items() if name not in filled})
            except TypeError as error:
                raise TypeError(f"{original.__name__}(): {error}") from None
            return call_on_ranks(original, arguments, named, shape_fields, how, shown=original)

        vars(on_ranks)["__signature__"] = wanted
        vars(on_ranks).update({ORIGINAL: original, SHAPE: shape_fields})
        return on_ranks

    return decorate if function is None else decorate(function)


def call_on_ranks(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    named: Mapping[str, Any],
    shape_fields: Mapping[str, Any],
    how: CallOptions,
    *,
    shown: Callable[..., Any],
) -> list[Any] | None:
    """Call a function on the ranks of a test runner's cluster, or of its own.

    Args:
        function: Function that ranks call.
        arguments: Positional arguments.
        named: Keyword arguments.
        shape_fields: Shape of the cluster.
        how: The function's own options of the call.
        shown: Function that an error points at if the error did not occur in it.
    """
    __tracebackhide__ = True
    if _provided:
        provided = _provided[-1]
        of_session = {name: getattr(provided.how, name) for name in ("settings", "variables", "write")}
        how = replace(how, **of_session)
        try:
            values = provided.cluster(shape_fields).call_as(function, arguments, named, how)
        except RanksFailed as error:
            raise (error if error.shown_inside else point_at_function(error, shown)) from error.__cause__
        except LabError as error:
            raise point_at_function(error, shown) from None
        return values if any(value is not None for value in values) else None  # a test must return nothing
    from lab.cluster import DEFAULT_NODES, Cluster

    own = Cluster(**{"nodes": DEFAULT_NODES, **shape_fields})
    try:
        return cast("list[Any]", own.call_as(function, arguments, named, how))
    finally:
        own.end_calls()


# -- the base of torch's own distributed tests, on ranks of the lab: change the import, and a class runs here
#
# from lab.testing.cases import MultiProcessTestCase  # from torch.testing._internal.common_distributed import ...


class MultiProcessTestCase(unittest.TestCase):
    """Runs each `test_*` method on `world_size` ranks, each on its own node.

    There, `setUp`, the method, and `tearDown` have `rank`, `world_size`, `file_name` (for a store of all ranks), and
    an `assertEqual` for tensors. They have no process group yet, as with torch's class.
    """

    world_size: int = 4
    engine: ClassVar[Any] = None
    """`docker` or `local`; None: the available one."""
    timeout_s: ClassVar[float] = 60.0
    """Seconds after which a test counts as hung."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for name, method in list(vars(cls).items()):
            if name.startswith("test") and callable(method):
                setattr(cls, name, _on_ranks(method))

    def run(self, result: unittest.TestResult | None = None) -> unittest.TestResult | None:
        """Run the test; only ranks run `setUp` and `tearDown`."""
        for name in ("setUp", "tearDown"):
            setattr(self, name, lambda: None)
        return super().run(result)

    def _spawn_processes(self) -> None:
        """Do nothing, because the ranks exist."""


setattr(MultiProcessTestCase, IN_NODE, "labnode.features.functions.on_node.torch_case:RankCase")


def _on_ranks(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method whose call runs it on each rank, on the rank's own object of the class."""

    @functools.wraps(method)
    def on_ranks(self: MultiProcessTestCase) -> None:
        __tracebackhide__ = True
        arguments = (type(self), method.__name__, f"store-{os.urandom(8).hex()}")
        shape_fields: dict[str, Any] = {"nodes": self.world_size, **({"engine": self.engine} if self.engine else {})}
        how = CallOptions(timeout_s=self.timeout_s, backend="")
        call_on_ranks(_run_case, arguments, {}, shape_fields, how, shown=method)

    vars(on_ranks)[ORIGINAL] = method
    return on_ranks


def _run_case(kind: type, name: str, file_name: str) -> None:
    """Placeholder: ranks call the function that replaces it."""


setattr(_run_case, IN_NODE, "labnode.features.functions.on_node.torch_case:run_case")
