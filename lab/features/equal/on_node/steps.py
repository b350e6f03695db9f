"""The `equal` lines: fingerprints of what each training step of this process reads, computes, and changes.

A line is about one step of an optimizer, and is made before it: its gradients are then reduced, and its parameters
have received what other ranks sent. A fingerprint of a tensor consists of the squared norm, the sum, and the projection
on `exp(i * (a0 * i0 + a1 * i1 + ...))`, where `i0`, `i1`, ... are the indices of an element. The projection of a shard
becomes that of its part of the whole tensor if it is multiplied by `exp(i * (a0 * offset0 + ...))`. So fingerprints of
shards add up to that of the whole tensor, and their reader can find out where a shard belongs.

The mode `rounding` changes each gradient by as much as another order of summation does. The mode `locate` adds, for one
step, the outputs of modules, the gradients before their reduction, and what touched gradients and parameters, by line.
"""

from __future__ import annotations

import base64
import ctypes
import gc
import math
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import Any

from ....node.recorder import patching
from ....node.recorder.journal import journal, source
from ....node.recorder.patching import call_after_making, call_before, do_nothing, inline_for_compile, replace_methods


class _Torch:
    """torch, which the script imports: a process of the lab has no need of it."""

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(import_module("torch"), name)
        return value


torch: Any = _Torch()

VARIABLE = "LAB_EQUAL"
"""Set to `record`, `rounding`, or `locate:OPTIMIZER:STEP`, it turns this on."""
ANGLES = (2.399963229728653, 1.324717957244746, 0.754877666246693, 2.839286755214161, 1.167303978261419)
"""Of the projection, by dimension: no small whole numbers of any two agree modulo a turn."""
WRAPPERS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Attributes by which wrappers of PyTorch hold the wrapped module."""
_SMALL, _ALL_SMALL = 1 << 14, 1 << 18
"""Most elements of a tensor, and of tensors together, whose weights are kept whole."""
_MOST_ROWS, _MOST_COLUMNS = 256, 1024
"""Most samples of a step, and elements of each, that are compared one by one."""
_MOST_EVENTS = 4000
_MOST_TOGETHER, _MOST_SECONDS = 8, 0.2
"""Steps whose tensors are measured together, and how long the first of them may wait for the others."""
_NO_TARGET = (-1, -1)
_EXACT_STEPS = 8
"""The lines of later steps are those of these: finding a line takes long."""


def record_steps() -> None:
    """Record the steps of this process, if its run asks for that."""
    if mode := os.environ.get(VARIABLE, ""):
        _start(mode, None, patching.patch_module)


def record_lines(mode: str) -> list[dict[str, Any]]:
    """Record the steps of this process from now on, and return the list to which lines are added."""
    lines = list[dict[str, Any]]()
    _start(mode, lines.append, lambda name, watch: watch(import_module(name)))
    return lines


def _start(mode: str, keep: Callable[[dict[str, Any]], object] | None, patch: Callable[[str, Any], object]) -> None:
    recorder = _Recorder(mode, keep)
    _recorders.append(recorder)
    for name, watch in recorder.watched.items():
        patch(name, watch)


def finish_steps() -> None:
    """Write the state after the last steps."""
    for recorder in _recorders:
        recorder.finish()


_recorders: list[_Recorder] = []
_made_at: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""Lines that made modules."""


# -- fingerprints


class _Sketch:
    """Fingerprints of tensors of the same shapes, one list of tensors after the other.

    A list is copied at once, and measured later together with others: one operator of torch takes as long as the sums
    of a thousand elements.
    """

    def __init__(self, tensors: Sequence[Any]) -> None:
        self._small, self._large, budget = list[int](), dict[int, tuple[Any, Any]](), _ALL_SMALL
        self._count, self._device = len(tensors), tensors[0].device if tensors else None
        self._weights = list[Any]()
        for number, tensor in enumerate(tensors):
            rows, columns = _weights(tuple(tensor.shape), self._device)
            if tensor.numel() <= min(_SMALL, budget):
                budget -= tensor.numel()
                self._weights.append(_parts_of((rows[:, None] * columns).reshape(-1)))
                self._small.append(number)
            else:
                self._large[number] = rows, _parts_of(columns).float().T.contiguous()
        self._lengths = [len(weights) for weights in self._weights]
        self.most = max(1, min(_MOST_TOGETHER, _ALL_SMALL // max(1, sum(self._lengths))))
        """Most lists to keep before they are measured."""

    def copy(self, tensors: Sequence[Any]) -> tuple[Any, dict[int, Any]]:
        """Return the elements of the small tensors, and the fingerprints of the others."""
        small, large = [tensors[number] for number in self._small], dict[int, Any]()
        flat: Any = torch._C._nn.flatten_dense_tensors(small) if small else None
        for number, (rows, columns) in self._large.items():
            tensor = tensors[number].float()
            sums, real, imaginary = (columns @ tensor.reshape(len(rows), -1).T).double()
            whole = (rows * torch.complex(real, imaginary)).sum()
            norm = torch.linalg.vector_norm(tensor).double()
            large[number] = torch.stack([norm * norm, sums.sum(), whole.real, whole.imag])
        return flat.clone() if len(small) == 1 else flat, large

    def measure(self, copies: Sequence[tuple[Any, dict[int, Any]]]) -> Any:
        """Return the fingerprints of each list: a row of four float64 for each tensor."""
        result = torch.zeros(len(copies), self._count, 4, dtype=torch.float64, device=self._device)
        if self._small:
            flat = torch.stack([flat for flat, _ in copies]).double()
            columns = list[Any]()
            for one, weights in zip(flat.split(self._lengths, 1), self._weights):
                columns += torch.linalg.vector_norm(one, dim=1, keepdim=True).square(), one @ weights
            result[:, self._small] = torch.cat(columns, 1).view(len(copies), -1, 4)
        for at, (_, large) in enumerate(copies):
            for number, values in large.items():
                result[at, number] = values
        return result


def _parts_of(weights: Any) -> Any:
    """Return the weights of a sum, and those of the projection as two real numbers."""
    return torch.stack([torch.ones_like(weights.real), weights.real, weights.imag], 1)


def _weights(shape: tuple[int, ...], device: Any) -> tuple[Any, Any]:
    """Return the weights of the projection of a tensor: of its first index, and of the others together."""

    def turns(size: int, dimension: int) -> Any:
        angles = torch.arange(size, dtype=torch.float64, device=device) * ANGLES[dimension % len(ANGLES)]
        return torch.polar(torch.ones_like(angles), angles)

    rows, columns = turns(shape[0] if shape else 1, 0), turns(1, 0)
    for dimension, size in enumerate(shape[1:], 1):
        columns = (columns[:, None] * turns(size, dimension)).reshape(-1)
    return rows, columns


def _encode(values: Any) -> str:
    values = values.detach().to("cpu").contiguous()
    return base64.b64encode(ctypes.string_at(values.data_ptr(), values.numel() * values.element_size())).decode()


def _row_values(tensor: Any) -> Any:
    """Return a number for each sample of a batch that depends on its elements, at most so many, and their order."""
    rows = tensor.detach().reshape(len(tensor), -1)
    columns = rows.shape[1]
    rows = rows[:, :: max(1, -(-columns // _MOST_COLUMNS))].double()
    return rows @ _column_weights(rows.shape[1], rows.device)


@cache
def _column_weights(count: int, device: Any) -> Any:
    return 1.5 + torch.cos(torch.arange(1.0, count + 1, dtype=torch.float64, device=device) ** 2)


def _local(tensor: Any) -> Any:
    """Return this rank's part of a tensor."""
    return getattr(tensor, "_local_tensor", tensor)


def _is_readable(tensor: Any) -> bool:
    is_dense = isinstance(tensor, torch.Tensor) and _local(tensor).layout == torch.strided
    return is_dense and tensor.is_floating_point() and _local(tensor).device.type != "meta"


def _placement(tensor: Any) -> tuple[list[int], list[int] | None, int]:
    """Return the whole shape of a tensor, where this rank's part begins, and how many parts have to be added."""
    if not hasattr(tensor, "_local_tensor"):
        return list(tensor.shape), None, 1
    partial = [one for one, of in enumerate(tensor.placements) if of.is_partial()]
    adds = math.prod(tensor.device_mesh.size(one) for one in partial)
    with suppress(Exception):  # an unknown kind of placement: its parts add up, but nobody knows where they belong
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset as locate

        return list(tensor.shape), list(locate(tensor.shape, tensor.device_mesh, tensor.placements)[1]), adds
    return list(tensor.shape), None, adds


# -- steps


def _strip(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _find_roots() -> list[Any]:
    """Return the modules of this process that have parameters and are in no other module."""
    modules = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module) and "_modules" in one.__dict__]
    inner = {id(child) for one in modules for child in one.modules() if child is not one}
    return [one for one in modules if id(one) not in inner and next(one.parameters(), None) is not None]


def _find_called(root: Any) -> Iterator[Any]:
    """Yield a module, or instead of one without `forward` those inside of it."""
    if type(root).forward is not torch.nn.Module.forward:
        yield root
    else:
        for child in root.children():
            yield from _find_called(child)


def _keyword_inputs(module: Any) -> list[Any]:
    """Return what a module gets by keyword while a hook of all modules runs, which does not receive it."""
    frame: Any = sys._getframe(1)
    while frame is not None and not (frame.f_locals.get("self") is module and "kwargs" in frame.f_locals):
        frame = frame.f_back
    return [] if frame is None else [*frame.f_locals["kwargs"].values()]


class _Settings(dict[str, Any]):
    """Settings of an optimizer that note the line which changes them."""

    line = ""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self.line = source.line()


class _Trained:
    """The parameters that an optimizer trains, with the others of their modules, and what is known of its steps."""

    def __init__(self, number: int, optimizer: Any, roots: Sequence[Any]) -> None:
        owned = [one for group in optimizer.param_groups for one in group["params"]]
        ids = {id(one): at for at, one in enumerate(owned)}
        with_ours = [root for root in roots if any(id(one) in ids for one in root.parameters())]
        with_ours.sort(key=lambda root: min(ids.get(id(one), len(ids)) for one in root.parameters()))
        kinds, named = [type(root).__name__ for root in with_ours], dict[int, tuple[str, Any]]()
        for at, root in enumerate(with_ours):
            kind = f"{kinds[at]}{kinds[:at].count(kinds[at]) or ''}." if len(kinds) > 1 else ""
            for name, parameter in root.named_parameters():
                named.setdefault(id(parameter), (f"{kind}{_strip(name)}", parameter))
        for position, parameter in enumerate(owned):
            named.setdefault(id(parameter), (f"parameter {position}", parameter))
        is_small = sum(_local(one).numel() for _, one in named.values()) <= _ALL_SMALL
        kept = [one for one in named.values() if (is_small or one[1].requires_grad) and _is_readable(one[1])]
        self.number, self.steps, self.written = number, 0, -1
        self.names, self.parameters = [name for name, _ in kept], [one for _, one in kept]
        self.owned = [number for number, one in enumerate(self.parameters) if id(one) in ids]
        self.roots = with_ours
        self.is_small = sum(_local(one).numel() for one in self.parameters) <= _ALL_SMALL
        self._sketches = dict[str, _Sketch]()
        self._rates: Any = None
        self._key = ""
        """Which gradients and states the last line has."""
        self._is_described = False

    def describe(self) -> dict[str, Any]:
        """Return the facts of the first line: names, shapes, where parts belong, and modules that draw numbers."""
        rows, made = [], dict[int, str]()
        for module in (one for root in self.roots for one in root.modules()):
            made |= {id(one): _made_at.get(module, "") for one in module.parameters(recurse=False)}
        for name, one in zip(self.names, self.parameters):
            shape, offset, adds = _placement(one)
            dtype, local = str(one.dtype).partition(".")[2], list(_local(one).shape)
            rows.append([name, dtype, shape, local, offset, adds, made.get(id(one), "")])
        random = [
            f"{_strip(name)} ({type(one).__name__})"
            for root in self.roots
            for name, one in root.named_modules()
            if "Dropout" in type(one).__name__ and one.training and getattr(one, "p", 0) > 0
        ]
        return {"model": rows, "random": random}

    def copy(self, tensors: Sequence[Any], key: str) -> tuple[_Sketch, Any] | str:
        """Return a copy of tensors to measure; those with the same key always have the same shapes."""
        if key not in self._sketches:
            self._sketches[key] = _Sketch(tensors)
        return (self._sketches[key], self._sketches[key].copy(tensors)) if tensors else ""

    def facts(self, optimizer: Any) -> dict[str, Any]:
        """Return the facts of the line before a step, or after the last one."""
        which: tuple[list[int], list[list[Any]]] = [], []
        tensors = [_local(one) for one in self.parameters]
        for number in self.owned:
            gradient = self.parameters[number].grad
            if gradient is not None and _is_readable(gradient):
                which[0].append(number)
                tensors.append(_local(gradient))
        if self.steps and (self.is_small or self.steps & (self.steps - 1) == 0):
            of_optimizer = getattr(optimizer, "optim", optimizer).state
            for number in self.owned:
                parameter = self.parameters[number]
                for name, value in sorted(of_optimizer.get(parameter, {}).items(), key=str):
                    if _is_readable(value) and value.shape == parameter.shape and value.dim():
                        which[1].append([number, str(name)])
                        tensors.append(_local(value))
        key = repr(which)
        facts: dict[str, Any] = {"f": self.copy(tensors, key)}
        if key != self._key:
            self._key = key
            facts |= {"g": which[0], "s": which[1]}
        rates = [group.get("lr") for group in optimizer.param_groups]
        if rates != self._rates or not self.steps & (self.steps - 1):
            self._rates = rates
            facts["set"] = [
                {name: value for name, value in group.items() if isinstance(value, (int, float, tuple))}
                for group in optimizer.param_groups
            ]
        if not self._is_described:
            self._is_described = True
            facts |= self.describe()
        return facts


class _Batch:
    """What went into a step until now."""

    def __init__(self) -> None:
        self.losses = list[float]()
        self.calls = list[tuple[int, Any, Sequence[float]]]()
        """By call: the first trained parameter of the model, a number for each sample; samples, elements, their sum,
        and the sum of their squares."""
        self.are_inputs_known = True
        self.forward_at = self.backward_at = ""
        self.cast = ""
        """Type in which the model computes under autocast."""


class _Recorder:
    """Writes the lines of this process."""

    def __init__(self, mode: str, keep: Callable[[dict[str, Any]], object] | None) -> None:
        self._mode, _, which = mode.partition(":")
        self._keep = keep
        """Keeps lines; None: they go to the journal."""
        self.watched = {
            "torch.nn.modules.module": self.watch_modules,
            "torch.autograd": self.watch_backward,
            "torch.optim.optimizer": self.watch_optimizers,
            "torch.utils.data.dataloader": self.watch_loaders,
        }
        self._target = tuple(map(int, which.split(":"))) if which else _NO_TARGET
        """Number of the optimizer and of its step to locate."""
        self._trained: weakref.WeakKeyDictionary[Any, _Trained] = weakref.WeakKeyDictionary()
        self._latest: Any = None
        """The last optimizer that made a step: it lives until its last state is written."""
        self._stepping: Any = None
        self._made_at: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        """Lines that made optimizers."""
        self._loaded = weakref.WeakSet[Any]()
        """Optimizers whose state the script loaded."""
        self._hooked = weakref.WeakSet[Any]()
        self._first_hooks = list[Any]()
        """Hooks of all modules, until the first step shows which ones are trained."""
        self._depth = self._stepped = 0
        self._lines = dict[str, str]()
        self._batch = _Batch()
        self._generator: Any = None
        self._locator: _Locator | None = None
        self._lines_to_write, self._write_until = list[dict[str, Any]](), math.inf

    def _guarded(self, action: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that neither raises into the script nor is seen by its modes."""

        def attempt(*arguments: Any) -> None:
            if not self._is_on():
                return
            had_gradients = torch.is_grad_enabled()
            torch._C._set_grad_enabled(False)  # `no_grad` takes longer
            try:
                if self._locator is None:
                    action(*arguments)
                else:
                    with torch._C._DisableTorchDispatch():
                        action(*arguments)
            except Exception as error:  # the script must not notice it
                self._mode = "off"
                self.add(why=f"{type(error).__name__}: {error}"[:300])
            finally:
                torch._C._set_grad_enabled(had_gradients)

        return inline_for_compile(attempt, do_nothing)

    def _is_on(self) -> bool:
        return self._mode != "off" and (journal.on or self._keep is not None)

    def add(self, **facts: Any) -> None:
        """Write a line, or keep it for a moment if others of its kind are to come."""
        self._lines_to_write.append(facts)
        self._write_until = min(self._write_until, time.monotonic() + _MOST_SECONDS)
        most = facts["f"][0].most if isinstance(facts.get("f"), tuple) else 1
        if len(self._lines_to_write) >= most or time.monotonic() >= self._write_until:
            self._write_lines()

    def _write_lines(self) -> None:
        lines, self._lines_to_write, self._write_until = self._lines_to_write, [], math.inf
        by_sketch = dict[_Sketch, list[dict[str, Any]]]()
        for line in lines:
            if isinstance(line.get("f"), tuple):
                by_sketch.setdefault(line["f"][0], []).append(line)
        for sketch, of_sketch in by_sketch.items():
            for line, values in zip(of_sketch, sketch.measure([line["f"][1] for line in of_sketch])):
                line["f"] = _encode(values)
        for line in lines:
            if self._keep is None:
                journal.add("equal", **line)
            else:
                self._keep(line)

    # -- what it watches

    def watch_modules(self, module: Any) -> None:
        """Note the line of each new module, and watch the outermost ones until the first step shows which it trains."""

        def note(one: Any) -> None:
            _made_at[one] = source.line()

        replace_methods(module.Module, ["__init__"], call_after_making(self._guarded(note)))

        def enter(one: Any, arguments: Any) -> None:
            self._depth += 1
            if self._depth == 1 and next(one.parameters(), None) is not None:
                self._enter_root(one, [*arguments, *_keyword_inputs(one)])

        def leave(*_: Any) -> None:
            self._depth -= 1

        self._first_hooks = [
            module.register_module_forward_pre_hook(inline_for_compile(enter, do_nothing)),
            module.register_module_forward_hook(inline_for_compile(leave, do_nothing), always_call=True),
        ]

    def watch_backward(self, module: Any) -> None:
        """Watch the losses from which backward passes begin."""
        note = self._guarded(self._note_loss)

        def begin(tensors: Any, *_: Any, **__: Any) -> None:
            note(tensors)

        patching.replace_function(module, "backward", call_before(begin))

    def watch_optimizers(self, module: Any) -> None:
        """Watch the steps of all optimizers."""
        module.register_optimizer_step_pre_hook(self._guarded(self._before_step))
        module.register_optimizer_step_post_hook(self._guarded(self._after_step))

        def note(optimizer: Any, *_: Any, **__: Any) -> None:
            self._made_at[optimizer] = source.line()
            self._watch_settings(optimizer)

        replace_methods(module.Optimizer, ["__init__"], call_after_making(note))

        def note_load(optimizer: Any, *_: Any, **__: Any) -> None:
            note(optimizer)
            self._loaded.add(optimizer)

        replace_methods(module.Optimizer, ["load_state_dict"], call_before(note_load))

    def _watch_settings(self, optimizer: Any) -> list[str]:
        """Note from now on where settings change, if a step is located; return the lines that did until now."""
        if self._target != _NO_TARGET:
            groups = optimizer.param_groups
            groups[:] = [one if isinstance(one, _Settings) else _Settings(one) for one in groups]
        return [one.line for one in optimizer.param_groups if getattr(one, "line", "")]

    def watch_loaders(self, module: Any) -> None:
        """Note where loaders are made, and how they choose samples."""

        def note(one: Any) -> None:
            sampler = getattr(one, "sampler", None)
            knows = {
                name: value for name in ("num_replicas", "rank") if isinstance(value := getattr(sampler, name, 0), int)
            }
            self.add(loader=source.line(), sampler=type(sampler).__name__, batch=one.batch_size, **knows)

        replace_methods(module.DataLoader, ["__init__"], call_after_making(self._guarded(note)))

    def _enter_root(self, module: Any, arguments: Sequence[Any]) -> None:
        if torch.is_grad_enabled() and self._is_on():
            if device := next(filter(torch.is_autocast_enabled, ("cpu", "cuda")), None):
                self._batch.cast = str(torch.get_autocast_dtype(device)).partition(".")[2]
            self._batch.forward_at = self._line("forward")
            self._guarded(self._note_inputs)(module, arguments)

    def _note_inputs(self, module: Any, arguments: Sequence[Any]) -> None:
        if self._is_target_next():
            if self._locator is None:
                self._locator = _Locator(self.add, self._made_at)
            self._locator.add_root(module, self._guarded)
        tensor = next((one for one in arguments if isinstance(one, torch.Tensor)), None)
        batch = self._batch
        if tensor is None:
            batch.are_inputs_known = False
        elif not tensor.requires_grad and tensor.dim() and tensor.numel() and not tensor.is_complex():
            tensor = _local(tensor)
            sums: tuple[float, ...] = (len(tensor), tensor.numel(), 0.0, 0.0)
            if tensor.dim() > 2:  # rows may be something else than samples
                wide = tensor.double()
                sums = (*sums[:2], *torch.stack([wide.sum(), (wide * wide).sum()]).tolist())
            rows = _row_values(tensor[:_MOST_ROWS])
            trained = next((one for one in module.parameters() if one.requires_grad), None)
            batch.calls.append((id(trained), rows, sums))
            if self._locator is not None:
                self._locator.rows.append(rows)

    def _line(self, what: str) -> str:
        """Return the current line of the script; that of the first steps, unless a step is located."""
        if self._target != _NO_TARGET or len(self._batch.losses) > 1 or self._stepped < _EXACT_STEPS:
            self._lines[what] = source.line()
        return self._lines[what]

    def _is_target_next(self) -> bool:
        """Return whether the step that the script prepares is the one to locate."""
        number, step = self._target
        return next((one.steps for one in self._trained.values() if one.number == number), 0) == step - 1

    def _note_loss(self, tensors: Any) -> None:
        self._batch.backward_at = self._line("backward")
        for one in [tensors] if hasattr(tensors, "numel") else list(tensors):
            if one.numel() == 1:
                self._batch.losses.append(float(_local(one)))
                if self._locator is not None:
                    self._locator.note_loss(one)

    # -- steps

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        if self._stepping is not None and self._stepping() is not None:
            return  # it is inside the step of another optimizer
        self._stepping, self._latest = weakref.ref(optimizer), optimizer
        trained = self._trained.get(optimizer) or self._begin(optimizer)
        if self._mode == "rounding":
            self._disturb(trained)
        if self._locator is not None:
            self._locator.pause()
            if trained.number == self._target[0] and self._is_target_next():
                self._locator.write_step(trained)
            elif trained.steps >= self._target[1]:
                self._end_locating(trained)
        facts = trained.facts(optimizer)
        trained.steps += 1
        if optimizer in self._loaded:
            facts["loaded"] = 1
        if "set" in facts:
            facts["set_at"] = [self._made_at.get(optimizer, ""), *self._watch_settings(optimizer)][-1]
        self._write(trained, facts)

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if self._stepping is None or self._stepping() is not optimizer:
            return
        self._stepping = None
        if self._locator is not None:
            self._locator.resume()
        elif self._is_target_next():
            self._locator = _Locator(self.add, self._made_at)
            for trained in self._trained.values():
                for root in trained.roots if trained.number == self._target[0] else ():
                    self._locator.add_root(root, self._guarded)

    def _begin(self, optimizer: Any) -> _Trained:
        roots = _find_roots()
        for hook in self._first_hooks:
            hook.remove()
        self._first_hooks = []

        def enter(root: Any, _: Any, arguments: Any, named: Any) -> None:
            self._enter_root(root, [*arguments, *named.values()])

        for root in roots:
            for called in _find_called(root) if root not in self._hooked else ():
                hook = inline_for_compile(partial(enter, root), do_nothing)
                called.register_forward_pre_hook(hook, with_kwargs=True)
            self._hooked.add(root)
        trained = self._trained[optimizer] = _Trained(len(self._trained), optimizer, roots)
        return trained

    def _disturb(self, trained: _Trained) -> None:
        """Change gradients by as much as rounding does."""
        if self._generator is None:
            self._generator = torch.Generator().manual_seed(1)
        for number in trained.owned:
            gradient = trained.parameters[number].grad
            if gradient is not None and _is_readable(gradient):
                one = _local(gradient)
                noise = torch.rand(one.shape, generator=self._generator, dtype=torch.float32).to(one.device) * 2 - 1
                one.mul_(1 + 2 * torch.finfo(one.dtype).eps * noise)

    def _write(self, trained: _Trained, facts: dict[str, Any]) -> None:
        batch, self._batch = self._batch, _Batch()
        self._stepped += 1
        ids = {id(one) for one in trained.parameters}
        if calls := [(rows, sums) for of, rows, sums in batch.calls if of in ids]:
            facts["x"] = _encode(torch.cat([rows for rows, _ in calls])[:_MOST_ROWS])
            if batch.are_inputs_known:
                facts["sums"] = [sum(values) for values in zip(*(sums for _, sums in calls))]
        facts |= {"loss": batch.losses, "forward": batch.forward_at, "back": batch.backward_at, "cast": batch.cast}
        self.add(o=trained.number, n=trained.steps, at=self._line("step"), **facts)

    def finish(self) -> None:
        """Write the parameters and the state after the last step of each optimizer."""
        self._guarded(self._finish)()

    def _finish(self) -> None:
        if not self._trained and self._batch.backward_at:
            self._write_without_optimizer()
        for optimizer, trained in self._trained.items():
            if self._locator is not None:
                self._locator.pause()
                self._end_locating(trained)
            if trained.written != trained.steps:
                trained.written = trained.steps
                self.add(o=trained.number, n=trained.steps + 1, last=1, **trained.facts(optimizer))
        self._write_lines()
        self._latest = None

    def _write_without_optimizer(self) -> None:
        """Write the gradients of a script that has no optimizer."""
        roots = _find_roots()
        if parameters := [one for root in roots for one in root.parameters() if one.grad is not None]:
            optimizer = self._latest = torch.optim.SGD(parameters, lr=0.0)
            trained = self._trained[optimizer] = _Trained(0, optimizer, roots)
            facts = trained.facts(optimizer)
            trained.steps = trained.written = 1
            self._write(trained, facts)

    def _end_locating(self, trained: _Trained) -> None:
        if self._locator is not None and trained.number == self._target[0]:
            self._locator.write_writes(trained)
            self._locator, self._target = None, _NO_TARGET


# -- one step in detail


def _tensors(values: Any) -> Iterator[Any]:
    """Yield the tensors in the arguments of an operator."""
    for value in values:
        if hasattr(value, "untyped_storage"):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _line_in_script(frame: Any) -> str:
    """Return the line of a frame if it is in the folder of the script."""
    path = frame.f_code.co_filename
    is_ours = path.startswith(source.folder) and not path.startswith(source.hidden)
    return f"{path.removeprefix(source.folder)}:{frame.f_lineno}" if is_ours else ""


def _memory(tensor: Any) -> int:
    """Return an address that tensors which share memory share, 0 if there is none."""
    with suppress(RuntimeError, NotImplementedError):
        return int(getattr(tensor, "_local_tensor", tensor).untyped_storage().data_ptr())
    return 0


class _Locator:
    """Records one step: outputs of modules, gradients of this rank, and what changes gradients and parameters."""

    def __init__(self, add: Callable[..., None], optimizers: Iterable[Any]) -> None:
        from torch.utils._python_dispatch import TorchDispatchMode

        self._add = add

        self.rows = list[Any]()
        """The samples, by call of the model."""
        self._roots, self._hooks = list[Any](), list[Any]()
        owned = [one for of in [*optimizers] for group in of.param_groups for one in group["params"]]
        self._parameters = {id(one): one for one in owned if one.requires_grad}
        """By identity: those of models, and parts that a script cuts itself."""
        self._followed = set[int]()
        """Those whose gradients are noted before the reduction."""
        self._local = dict[int, list[float]]()
        self._outputs = list[tuple[Any, list[str], int, int, Any]]()
        """Module, the lines of its last and its first operator, call of the model, elements of a sample, and a number
        for each sample."""
        self._events = list[tuple[str, str, list[int], list[list[float]]]]()
        """Operator, line, parameters, and their gradients before it; none if it is about other tensors made of them."""
        self._backward = dict[tuple[str, str], None]()
        """Operators in backward passes, and the lines that call them."""
        self._writes = list[tuple[str, str, list[int]]]()
        self._derived = dict[int, tuple[Any, set[int]]]()
        """By address: tensors made of gradients, and of which."""
        self._scalars = dict[int, tuple[Any, str]]()
        self._last_lines, self._first_lines = dict[Any, str](), dict[Any, str]()
        """By code of a method `forward`: the lines of its last and its first operator."""
        self._loss_at = ""
        self._sketches = dict[tuple[int, ...], _Sketch]()
        self._is_on = False
        locator = self

        class Mode(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, function: Any, _: Any, arguments: Any = (), named: Any = None) -> Any:
                with suppress(Exception):  # what cannot be read is not recorded
                    locator._note_call(function, arguments)
                result = function(*arguments, **(named or {}))
                with suppress(Exception):
                    locator._note_result(function, arguments, result)
                return result

        self._mode = Mode()

    def add_root(self, root: Any, guarded: Callable[..., Any]) -> None:
        """Watch a model from now on."""
        self.resume()
        if any(root is one for one in self._roots):
            return
        self._roots.append(root)
        for module in root.modules():
            self._hooks.append(module.register_forward_hook(guarded(self._note_output)))
        for parameter in root.parameters():
            self._parameters[id(parameter)] = parameter
            if parameter.requires_grad and id(parameter) not in self._followed:
                self._followed.add(id(parameter))
                self._hooks.append(parameter.register_hook(guarded(partial(self._note_gradient, id(parameter)))))

    def resume(self) -> None:
        """Watch operators."""
        if not self._is_on:
            self._is_on = True
            self._mode.__enter__()

    def pause(self) -> None:
        """Stop watching operators."""
        if self._is_on:
            self._is_on = False
            self._mode.__exit__(None, None, None)

    def _measure(self, tensor: Any) -> list[float]:
        tensor = _local(tensor)
        if (shape := tuple(tensor.shape)) not in self._sketches:
            self._sketches[shape] = _Sketch([tensor])
        sketch = self._sketches[shape]
        values: list[float] = sketch.measure([sketch.copy([tensor])])[0, 0].tolist()
        return values

    def _note_gradient(self, of: int, gradient: Any) -> None:
        if _is_readable(gradient):
            known = self._local.get(of, [0.0] * 4)
            self._local[of] = [0.0, *(one + other for one, other in zip(known[1:], self._measure(gradient)[1:]))]

    def _note_output(self, module: Any, _: Any, output: Any) -> None:
        output = next(_tensors([output]), None)
        if output is not None and output.dim() and output.is_floating_point() and len(self._outputs) < _MOST_EVENTS:
            values = _row_values(_local(output)[:_MOST_ROWS])
            width = output.numel() // max(1, len(output))
            code = getattr(type(module).forward, "__code__", None)
            lines = [known.get(code) or source.line() for known in (self._last_lines, self._first_lines)]
            self._outputs.append((module, lines, len(self.rows), width, values))

    def note_loss(self, loss: Any) -> None:
        """Note the line that computed a loss."""
        self._loss_at = self._scalars.get(_memory(loss), (None, source.line()))[1]

    def _touched(self, tensors: Sequence[Any]) -> tuple[list[int], list[int]]:
        """Return the parameters whose gradients are among these tensors, and those of which these tensors are made."""
        memory = {_memory(one) for one in tensors} - {0}
        direct = [of for of, one in self._parameters.items() if one.grad is not None and _memory(one.grad) in memory]
        derived = {of for address in memory if address in self._derived for of in self._derived[address][1]}
        return direct, sorted(derived - set(direct))

    def _note_call(self, function: Any, arguments: Any) -> None:
        schema = getattr(function, "_schema", None)
        if schema is None or not (schema.is_mutable or "c10d" in function.namespace):
            return
        tensors = [*_tensors(arguments)]
        with torch.no_grad(), torch._C._DisableTorchDispatch():
            direct, derived = self._touched(tensors)
            if direct or derived or str(function).startswith("c10d.send"):
                before = [self._measure(self._parameters[of].grad) for of in direct]
                if len(self._events) < _MOST_EVENTS:
                    self._events.append((str(function), source.line(), direct or derived, before))
            changed = {_memory(one) for one in tensors[:1]} | {_memory(one) for one in _tensors(arguments[:1])}
            written = [of for of, one in self._parameters.items() if _memory(one) in changed - {0}]
            if written and len(self._writes) < _MOST_EVENTS:
                self._writes.append((str(function), source.line(), written))

    def _note_result(self, function: Any, arguments: Any, result: Any) -> None:
        frame: Any = sys._getframe(2)
        is_backward = False
        while frame is not None:
            if frame.f_code.co_name == "forward" and (line := _line_in_script(frame)):
                self._last_lines[frame.f_code] = line
                self._first_lines.setdefault(frame.f_code, line)
            is_backward = is_backward or frame.f_code.co_name == "_engine_run_backward"
            frame = frame.f_back
        if is_backward and len(self._backward) < _MOST_EVENTS:
            self._backward[str(function), source.line()] = None
        made = [*_tensors([result])]
        for one in made:
            if one.numel() == 1 and one.is_floating_point():
                self._scalars[_memory(one)] = one.detach(), source.line()
        direct, derived = self._touched([*_tensors(arguments)])
        if of := {*direct, *derived}:
            gradients = {_memory(one.grad) for one in self._parameters.values() if one.grad is not None}
            for one in made:
                if _memory(one) not in gradients and one.numel() > 1:
                    self._derived[_memory(one)] = one.detach(), of | self._derived.get(_memory(one), (None, set()))[1]
                    if not function._schema.is_mutable and len(self._events) < _MOST_EVENTS:
                        self._events.append((str(function), source.line(), sorted(of), []))

    def write_step(self, trained: _Trained) -> None:
        """Write what happened until the step, and watch only parameters from now on."""
        for hook in self._hooks:
            hook.remove()
        known = [*self._roots, *trained.roots]
        names = {id(one): _strip(name) for root in known for name, one in root.named_modules()}
        self._parameters |= {id(one): one for one in trained.parameters}
        numbers = {id(one): number for number, one in enumerate(trained.parameters)}
        events = [
            [operator, line, [numbers[one] for one in of if one in numbers], before]
            for operator, line, of, before in self._events
        ]
        self._add(
            o=trained.number, n=trained.steps + 1, located=1, loss_at=self._loss_at, events=events,
            backward=[*self._backward], rows=[_encode(one) for one in self.rows],
            outputs=[
                [names.get(id(one), ""), type(one).__name__, lines, call, width, _encode(values)]
                for one, lines, call, width, values in self._outputs
            ],
            local=[[numbers[of], values] for of, values in self._local.items() if of in numbers],
        )  # fmt: skip
        self._events, self._writes, self._outputs, self._hooks = [], [], [], []
        self._derived, self._scalars = {}, {}

    def write_writes(self, trained: _Trained) -> None:
        """Write what changed parameters after the step, except its optimizer."""
        numbers = {id(one): number for number, one in enumerate(trained.parameters)}
        writes = [[name, line, [numbers[one] for one in of if one in numbers]] for name, line, of in self._writes]
        self._add(o=trained.number, n=trained.steps, writes=writes)
