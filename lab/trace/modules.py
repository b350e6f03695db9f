"""Reads what a rank's trace says of its DistributedDataParallel modules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.trace.fields import sizes, whole
from lab.trace.model import Buffer, Mark, RankTrace
from lab.trace.training import Buckets, Module, Parameter, Turn


class ModuleReader:
    """Takes the lines about modules of one rank, in order."""

    def __init__(self, result: RankTrace) -> None:
        self.result = result
        self._called: tuple[int, bool] | None = None
        """Number of the module whose forward is to begin next, and whether its gradients will be exchanged."""

    def describe(self, line: Mapping[str, Any], group: str, time: float) -> None:
        """A module was constructed, or has rebuilt its buckets."""
        number, module = whole(line["d"]), self._module(line["d"])
        if "params" in line:
            parameters = [Parameter(str(name), str(dtype), sizes(shape)) for name, dtype, shape in line["params"]]
            module = Module(number, group, str(line.get("at", "")), tuple(parameters))
            self.result.modules.append(module)
        known = [] if module is None else [(one.name, Buffer(one.dtype, one.shape).count) for one in module.parameters]
        buckets = [[known[whole(i)] for i in bucket] for bucket in line["buckets"]]
        if not buckets:
            return  # its construction failed
        self.result.buckets.append(
            Buckets(
                rank=self.result.rank,
                module=number,
                group=group,
                time=time,
                rebuilt=bool(line.get("rebuilt")),
                buckets=tuple(tuple(name for name, _ in bucket) for bucket in buckets),
                sizes=tuple(sum(count for _, count in bucket) for bucket in buckets),
            )
        )

    def hook(self, line: Mapping[str, Any]) -> None:
        """What reduces the gradients of a module."""
        module = self._module(line["d"])
        if module is not None:
            module.hook = str(line["name"])

    def norms(self, line: Mapping[str, Any]) -> None:
        """The norms of a module's parameters after some step of its optimizer."""
        module = self._module(line["d"])
        if module is not None:
            module.norms[whole(line["steps"])] = _norms(line["norms"])

    def turn(self, line: Mapping[str, Any], time: float) -> None:
        """What an optimizer that has no parameter of a module had and did at one of its steps."""
        elements, gradients, norms = tuple(map(whole, line["sizes"])), _norms(line["grads"]), _norms(line["norms"])
        if not len(elements) == len(gradients) == len(norms):
            raise ValueError(line)
        turn = Turn(time, str(line.get("at", "")), elements, gradients, norms)
        self.result.turns[whole(line["o"]), whole(line["steps"])] = turn

    def calls(self, line: Mapping[str, Any]) -> None:
        """Which module's forward begins next, where there are several or its gradients will not be exchanged."""
        self._called = whole(line["d"]), bool(line.get("sync", 1))

    def begins(self, mark: Mark) -> None:
        """A phase begins: a forward is that of the one module, or of the one that was said to begin."""
        if mark.name == "forward":
            only = self.result.modules[0].number if len(self.result.modules) == 1 else None
            mark.module, mark.synchronised = self._called or (only, True)
            self._called = None

    def _module(self, number: Any) -> Module | None:
        return next((module for module in self.result.modules if module.number == whole(number)), None)


def _norms(told: Any) -> tuple[float | None, ...]:
    return tuple(None if norm is None else float(norm) for norm in told)
