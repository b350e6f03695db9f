"""Read lines about DistributedDataParallel modules from a trace, and assign reductions to buckets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from lab.trace.model import Buckets, Buffer, Call, Module, Parameter, Phase, RankTrace
from lab.trace.read import RankReader, parse_count, parse_shape

_HOOKS = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"
_DIVIDE_FIRST = {None, *(f"{_HOOKS}.{name}" for name in ("allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"))}
"""Hooks after which gradients are means: DDP itself and these hooks of PyTorch; for others this is unknown."""


class Turn(NamedTuple):
    """State and work of an optimizer at one of its steps."""

    time: float
    source: str
    settings: Mapping[str, float]
    """`lr`, `momentum`, ..., of its first group of parameters."""
    made_at: str
    """The line that constructed it, if its settings are still those that it was made with; else empty."""
    sizes: tuple[int, ...]
    """Elements of each of its parameters; not known for those of a DDP module."""
    gradients: tuple[float | None, ...]
    """Norm of each gradient, None if there was none or it is unknown; for a large gradient, norm of a sample."""
    norms: tuple[float | None, ...]
    """Norm of each parameter after the step."""


def turns_of(rank: RankTrace) -> dict[tuple[int, int], Turn]:
    """Return the turns by number of the optimizer and of its step.

    Only optimizers without parameters of DDP modules have turns.
    """
    return cast("dict[tuple[int, int], Turn]", rank.extra.setdefault("optimizer_turns", {}))


def turns_of_modules(rank: RankTrace) -> dict[tuple[int, int], Turn]:
    """Return the same by number of a DDP module, for the optimizers that have its parameters."""
    return cast("dict[tuple[int, int], Turn]", rank.extra.setdefault("module_turns", {}))


class ModuleReader:
    """Reads lines about modules and optimizers of one rank, in addition to the lines that `RankReader` reads."""

    def __init__(self, reader: RankReader) -> None:
        self.reader, self.result = reader, reader.result
        self._called: tuple[int, bool] | None = None
        """Number of the module whose forward begins next, and whether its gradients will be exchanged."""
        self._read_phase_line = reader.actions["mark"]
        reader.actions |= {
            "ddp": self._read_layout, "module": self._read_call, "hook": self._read_hook, "norms": self._read_norms,
            "weights": self._read_turn, "mark": self._read_phase,
        }  # fmt: skip
        reader.at_end.append(lambda: assign_buckets(self.result))

    def _read_layout(self, line: Mapping[str, Any]) -> None:
        """Handle a module that was constructed, or that rebuilt its buckets."""
        number, module = parse_count(line["d"]), self._module(line)
        group = self.reader.group_name(line)
        if "params" in line:
            parameters = [Parameter(str(name), str(dtype), parse_shape(shape)) for name, dtype, shape in line["params"]]
            module = Module(number, group, str(line.get("at", "")), tuple(parameters))
            self.result.modules.append(module)
        known = [] if module is None else [(one.name, Buffer(one.dtype, one.shape).count) for one in module.parameters]
        if buckets := [[known[parse_count(i)] for i in bucket] for bucket in line["buckets"]]:  # else it failed
            names = tuple(tuple(name for name, _ in bucket) for bucket in buckets)
            elements = tuple(sum(count for _, count in bucket) for bucket in buckets)
            time, rebuilt = self.reader.seconds(line), bool(line.get("rebuilt"))
            self.result.buckets.append(Buckets(self.result.rank, number, group, time, rebuilt, names, elements))

    def _read_hook(self, line: Mapping[str, Any]) -> None:
        """Handle the hook that reduces the gradients of a module."""
        if (module := self._module(line)) is not None:
            module.hook = str(line["name"])

    def _read_norms(self, line: Mapping[str, Any]) -> None:
        """Handle the norms of a module's parameters after a step of its optimizer."""
        if (module := self._module(line)) is not None:
            steps, norms = parse_count(line["steps"]), _norms(line["norms"])
            module.norms[steps] = norms
            turns_of_modules(self.result)[module.number, steps] = self._turn(line, (), norms)

    def _read_turn(self, line: Mapping[str, Any]) -> None:
        """Handle a step of an optimizer without parameters of a module."""
        turn = self._turn(line, tuple(map(parse_count, line["sizes"])), _norms(line["norms"]))
        if not len(turn.sizes) == len(turn.gradients) == len(turn.norms):
            raise ValueError(line)
        turns_of(self.result)[parse_count(line["o"]), parse_count(line["steps"])] = turn

    def _turn(self, line: Mapping[str, Any], sizes: tuple[int, ...], norms: tuple[float | None, ...]) -> Turn:
        settings = {str(name): float(value) for name, value in line.get("set", {}).items()}
        gradients = _norms(line.get("grads", ()))
        at, made_at = str(line.get("at", "")), str(line.get("made", ""))
        return Turn(self.reader.seconds(line), at, settings, made_at, sizes, gradients, norms)

    def _read_call(self, line: Mapping[str, Any]) -> None:
        """Handle which module's forward begins next, if there are several or its gradients will not be exchanged."""
        self._called = parse_count(line["d"]), bool(line.get("sync", 1))

    def _read_phase(self, line: Mapping[str, Any]) -> None:
        """Handle a phase that begins or ends; for a forward, set its module."""
        self._read_phase_line(line)
        if str(line["n"]) == "forward" and not line.get("e"):
            phase = self.reader.nested[-1]
            only = self.result.modules[0].number if len(self.result.modules) == 1 else None
            phase.module, phase.synchronised = self._called or (only, True)
            self._called = None

    def _module(self, line: Mapping[str, Any]) -> Module | None:
        number = parse_count(line["d"])
        return next((module for module in self.result.modules if module.number == number), None)


def _norms(norms: Any) -> tuple[float | None, ...]:
    return tuple(None if norm is None else float(norm) for norm in norms)


def assign_buckets(rank: RankTrace) -> None:
    """Set `Call.bucket`, `module`, and `parameters` of each reduction that a backward pass issued for a DDP module.

    DDP reduces its buckets in order. So a reduction in a backward pass on the module's group belongs to the next bucket
    if it has as many elements. Nothing is assigned if a communication hook sends something else, or if the bucket may
    belong to several modules whose forward ran since the last backward.
    """
    if not rank.buckets:
        return
    divided = {module.number for module in rank.modules if module.hook in _DIVIDE_FIRST}
    due: dict[int, int] = {}
    # modules whose forward ran before the last backward, and since then
    before, since = set[int | None](), set[int | None]()
    phases = [phase for phase in rank.phases if phase.name in ("forward", "backward")]
    timeline: list[Phase | Call] = [*phases, *rank.calls]
    for one in sorted(timeline, key=lambda one: (one.begin, isinstance(one, Call))):
        if isinstance(one, Phase):
            if one.name == "forward":
                since.add(one.module)
            else:
                due, before, since = {}, since, set()
        elif one.phase == "backward" and one.operation.synchronises and one.inputs:
            latest = {of.module: of for of in rank.buckets if of.group == one.group and of.time <= one.begin}
            size = sum(buffer.count for buffer in one.inputs)
            fitting = [of for of in latest.values() if of.sizes[(at := due.get(of.module, 0)) : at + 1] == (size,)]
            if len(fitting) > 1:
                fitting = [of for of in fitting if of.module in before | since]
            if len(fitting) == 1:
                one.module, one.bucket = fitting[0].module, due.get(fitting[0].module, 0)
                one.parameters = fitting[0].buckets[one.bucket]
                one.divided = one.module in divided and one.reduce_op == "SUM"
                due[one.module] = one.bucket + 1
