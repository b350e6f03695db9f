"""What a cluster has that calls functions on its ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from lab.run.observe import Observer
from lab.run.options import RunOptions

if TYPE_CHECKING:
    from lab.features.functions.calling import Calling, How
    from lab.record.result import Result
    from lab.spec.scenario import Scenario


class Calls:
    """Methods that `Cluster` has besides its own; see `Feature.cluster`."""

    if TYPE_CHECKING:
        before_use: list[Callable[[], object]]

        def run_for(self, purpose: str, scenario: Scenario, options: RunOptions, observer: Observer) -> Result:
            """See `Cluster.run_for`."""
            ...

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
        return calling_of(self, partial(run_ranks, self)).call(function, arguments, named, how)

    @property
    def called(self) -> Result | None:
        """What came of the ranks that were called last, once they have ended."""
        calling: Calling | None = vars(self).get("_calling")
        return calling.result if calling is not None else None

    def end_calls(self) -> Result | None:
        """Have the ranks end that were called; returns the result of their run, if there were any."""
        calling: Calling | None = vars(self).get("_calling")
        return calling.end() if calling is not None else None


def calling_of(cluster: Any, run: Callable[[Scenario, RunOptions, Observer], Result]) -> Calling:
    """What calls functions on a cluster; made when it is first asked for.

    Args:
        cluster: where.
        run: makes the run that ranks are while they take calls.
    """
    from lab.features.functions.calling import Calling

    found: Calling = vars(cluster).setdefault("_calling", Calling(run))  # threads may do so at once
    if found.end not in cluster.before_use:
        cluster.before_use.append(found.end)
    return found


def run_ranks(cluster: Any, scenario: Scenario, options: RunOptions, observer: Observer) -> Result:
    """Make the run that ranks are while they take calls."""
    return cluster.run_for("calls of functions", scenario, options, observer)
