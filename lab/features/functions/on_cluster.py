"""The part of a cluster that calls functions on its ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lab.run.lock import ClusterLock
from lab.run.observe import Observer
from lab.run.options import RunOptions
from lab.run.place import Place

if TYPE_CHECKING:
    from lab.features.functions.calling import Calling, How
    from lab.plan.cluster import ClusterInfo
    from lab.record.result import Result
    from lab.spec.scenario import Scenario


class OnCluster:
    """What `Cluster` has besides its runs."""

    _lock: ClusterLock
    _place: Place
    _calling: Calling | None = None

    def call(
        self, function: Callable[..., Any], /, *args: Any, timeout_s: float = 60.0, fresh: bool = False, **kwargs: Any
    ) -> list[Any]:
        """Call a function on every rank, in a process group of all of them.

        The first call starts the ranks, as one run with its record; they stay for the next calls, and end with `down`,
        before the next `run`, and when a call fails or hangs: then the next one gets new ranks. Calls of several
        threads are made one after the other.

        Args:
            function: any function, nested ones and methods too; it travels with its code.
            args: its arguments, pickled by cloudpickle.
            timeout_s: how long it may take before it is hung.
            fresh: start new ranks for it.
            kwargs: its arguments by name.

        Returns:
            What it returned, by rank: numbers, text, containers, tensors, arrays, dataclasses, named tuples, enums.

        Raises:
            RanksFailed: it raised something; what is raised is of that class too, its traceback leads through the
                function, and `ranks` and `record` say where.
            RanksHung: it did not end in time; the message says who was waited for, and where.
            UsageError: it or its arguments cannot be sent.
            LabError: what it returned is not data; or the ranks could not be started, as for `run`.
        """
        __tracebackhide__ = True
        from lab.features.functions.calling import How

        return self.call_as(function, args, kwargs, How(timeout_s=timeout_s, fresh=fresh))

    def call_as(
        self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], how: How
    ) -> list[Any]:
        """As `call`, in a way that has more to it."""
        __tracebackhide__ = True
        if self._calling is None:
            from lab.features.functions.calling import Calling

            vars(self).setdefault("_calling", Calling(self._run_called))  # threads may do so at once
        assert self._calling is not None
        return self._calling.call(function, arguments, named, how)

    @property
    def called(self) -> Result | None:
        """What came of the ranks that were called last, once they have ended."""
        return self._calling.result if self._calling is not None else None

    def end_calls(self) -> Result | None:
        """Have the ranks end that were called; returns the result of their run, if there were any."""
        return self._calling.end() if self._calling is not None else None

    @contextmanager
    def _held(self, purpose: str, wait_s: float = 0.0, *, removes: bool = False) -> Iterator[ClusterLock]:
        """The lock of the cluster, which ranks that are called have until they end."""
        self.end_calls()
        with self._lock.held(purpose, wait_s, removes=removes) as lock:
            yield lock

    def _run_called(self, scenario: Scenario, options: RunOptions, observer: Observer) -> Result:
        with self._lock.held("calls of functions", options.wait_s) as lock:
            return self._place.run(self._usable(lock), scenario, options, observer)

    def _usable(self, lock: ClusterLock) -> ClusterInfo | None:
        raise NotImplementedError
