"""Compare the recorded steps of two runs, and name the first difference beyond rounding, with its cause. Pure.

It first adds up the fingerprints of the parts of a tensor: by placement for DTensors, by rank for parts that a script
cuts itself. A difference counts if it changes what is trained. Its cause is then sought in program order:
samples, outputs of modules, loss, gradients of ranks, reduction of gradients, optimizer.
"""

from __future__ import annotations

import base64
import cmath
import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, takewhile
from typing import Any, NamedTuple

from lab.features.equal.on_node.steps import ANGLES
from lab.frozen import Frozen
from lab.record.layout import TRACE, rank_trace
from lab.record.read import Record
from lab.record.record_files import open_file, read_lines
from lab.words import format_count, join_words, name_ranks

_FLOORS = {"float64": 1e-9, "float32": 2e-5, "float16": 1e-2, "bfloat16": 4e-2}
"""Least relative tolerance, by type: some hundred times its rounding; less for types with few digits."""
_NOISE = 30.0
"""How many times the difference of two runs of the same program is still rounding."""
_OF_ALL = 1e-6
"""Smaller parts of all gradients together are rounding: a sum of terms that cancel each other."""
_SAME_FACTOR = 2e-3
_MOST_NAMED = 3
_MOST_COMPARED = 8
"""Parameters whose gradients are followed line by line."""
_SCALES, _COPIES = ("div", "mul", "_foreach_div", "_foreach_mul"), ("copy", "set", "_foreach_copy")
"""Beginnings of the names of operators that scale tensors, and that copy them."""
_CHAOS = 1e-3
"""Once the second run of the reference is this far from it, other runs may be anywhere."""
_LONGEST_LINE_BYTES = 1 << 26


PARAMETERS, GRADIENTS = "parameters", "gradients"


class Print(NamedTuple):
    """The fingerprint of a tensor."""

    square: float
    """Square of the norm."""
    total: float
    wave: complex
    """The projection."""

    @property
    def norm(self) -> float:
        """The norm."""
        return math.sqrt(max(0.0, self.square)) if self.square == self.square else math.nan

    def __add__(self, other: Print) -> Print:  # type: ignore[override]
        """Return the fingerprint of two parts of a tensor together."""
        return Print(self.square + other.square, self.total + other.total, self.wave + other.wave)

    def times(self, factor: float) -> Print:
        """Return the fingerprint of the tensor times a factor."""
        return Print(self.square * factor * factor, self.total * factor, self.wave * factor)

    def moved(self, offset: Sequence[int]) -> Print:
        """Return the fingerprint of a part of a tensor that begins there."""
        angle = sum(ANGLES[one % len(ANGLES)] * of for one, of in enumerate(offset))
        return self._replace(wave=self.wave * cmath.exp(1j * angle))

    def is_finite(self) -> bool:
        """Return whether all elements are numbers."""
        return math.isfinite(self.square) and math.isfinite(self.total)


def _read_print(values: Sequence[float]) -> Print:
    return Print(values[0], values[1], complex(values[2], values[3]))


def estimate_distance(one: Print, other: Print, count: int, *, weak: bool = False) -> float:
    """Estimate the norm of the difference of two tensors; `weak` ignores the order of elements."""
    if not (one.is_finite() and other.is_finite()):
        return 0.0 if one.is_finite() == other.is_finite() else math.inf
    parts = [abs(one.norm - other.norm), abs(one.total - other.total) / math.sqrt(max(1, count))]
    if not weak:
        difference = one.wave - other.wave
        parts += [abs(difference.real), abs(difference.imag)]
    return max(parts)


class Parameter(NamedTuple):
    """A parameter, or a rank's part of it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    """Of the whole parameter, as far as PyTorch knows."""
    local: tuple[int, ...]
    offset: tuple[int, ...] | None
    """Where this part begins; None if only the script knows."""
    adds: int
    """How many parts have to be added, element by element."""
    made: str
    """The line that made its module."""

    @property
    def size(self) -> int:
        """The number of elements that this rank has."""
        return math.prod(self.local)


@dataclass
class Step:
    """What one rank did in one step."""

    at: str = ""
    tensors: dict[str, dict[str, Print]] = field(default_factory=dict)
    """By kind, then by the name of the parameter, before the step: `PARAMETERS`, `GRADIENTS`, and names of states."""
    facts: dict[str, Any] = field(default_factory=dict)
    settings: Any = None
    settings_at: str = ""
    """The line that made the optimizer, or changed its settings last."""
    located: dict[str, Any] = field(default_factory=dict)
    writes: list[Any] = field(default_factory=list)

    @property
    def states(self) -> list[str]:
        """The names of states of its optimizer."""
        return [kind for kind in self.tensors if kind not in (PARAMETERS, GRADIENTS)]

    @property
    def rows(self) -> list[float]:
        """A number for each of its samples."""
        return read_floats(self.facts.get("x", ""))


class Event(NamedTuple):
    """What touched the gradient of a parameter, or tensors that are made of it."""

    operator: str
    line: str
    before: Print | None
    """The gradient before it; None: it touched another tensor."""


History = Sequence[tuple[str, Print, bool]]
"""Lines that changed a gradient, each with the mean of all ranks after it, and whether ranks had the same."""
Key = tuple[int, int]
"""Number of the optimizer, and of its step, from 1."""


@dataclass
class Recorded:
    """The steps of all ranks of a run."""

    ranks: dict[int, dict[Key, Step]] = field(default_factory=dict)
    models: dict[int, dict[str, Parameter]] = field(default_factory=dict)
    names: dict[int, dict[int, list[str]]] = field(default_factory=dict)
    """By rank and optimizer: the names of parameters, in order."""
    random: list[str] = field(default_factory=list)
    """Modules that draw numbers."""
    loaders: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    coarse: str = ""
    """The coarsest type that it computes or sends in."""

    def at(self, key: Key) -> dict[int, Step]:
        """Return a step by rank."""
        return {rank: steps[key] for rank, steps in self.ranks.items() if key in steps}

    def made(self, key: Key) -> dict[int, Step]:
        """Return a step by rank, without states after the last step."""
        return {rank: step for rank, step in self.at(key).items() if not step.facts.get("last")}

    def keys(self) -> list[Key]:
        """List the steps that any rank made, in order."""
        keys = {key for steps in self.ranks.values() for key in steps}
        return sorted((key for key in keys if self.made(key)), key=lambda key: (key[1], key[0]))

    def ends(self, number: int) -> dict[int, Step]:
        """Return the state after the last step that each rank made with an optimizer."""
        return {
            rank: step
            for rank, steps in self.ranks.items()
            for (of, _), step in steps.items()
            if of == number and step.facts.get("last")
        }

    def rename(self, rank: int, names: Mapping[str, str]) -> None:
        """Give the parameters of a rank other names."""
        self.models[rank] = {names.get(name, name): one for name, one in self.models[rank].items()}
        self.names[rank] = {of: [names.get(one, one) for one in known] for of, known in self.names[rank].items()}
        for step in self.ranks[rank].values():
            step.tensors = {
                kind: {names.get(name, name): one for name, one in values.items()}
                for kind, values in step.tensors.items()
            }

    def after(self, key: Key) -> dict[int, Step]:
        """Return the state after a step, by rank."""
        return self.at((key[0], key[1] + 1))

    def number_of(self, rank: int, key: Key, name: str) -> int:
        """Return the number by which a rank's lines name a parameter, -1 if they do not."""
        names = self.names.get(rank, {}).get(key[0], [])
        return names.index(name) if name in names else -1

    def events(self, rank: int, key: Key, name: str) -> list[Event]:
        """List what touched the gradient of a parameter before the step, in order."""
        number, located = self.number_of(rank, key, name), self.ranks[rank][key].located
        return [
            Event(operator, line, _read_print(before[of.index(number)]) if before else None)
            for operator, line, of, before in located.get("events", ())
            if number in of
        ]

    def values(self, key: Key, name: str) -> dict[int, tuple[list[str], list[Print]]]:
        """Return the lines that touched a gradient, after "" for the time before, and its values then, by rank."""
        by_rank = dict[int, tuple[list[str], list[Print]]]()
        for rank, step in self.made(key).items():
            events = [(one.line, one.before) for one in self.events(rank, key, name) if one.before is not None]
            if events and name in step.tensors[GRADIENTS]:
                values = [*(before for _, before in events), step.tensors[GRADIENTS][name]]
                by_rank[rank] = ["", *(line for line, _ in events)], values
        return by_rank


def read_floats(text: str) -> list[float]:
    """Return the float64 numbers that a line has in base64."""
    data = base64.b64decode(text)
    return list(struct.unpack(f"<{len(data) // 8}d", data))


def read_recorded(record: Record) -> Recorded:
    """Read the steps that a run recorded."""
    recorded = Recorded()
    for rank in sorted(record.workers()):
        read = _line_reader(recorded, rank)
        try:
            file = open_file(record.path, f"{TRACE}/{rank_trace(rank)}")
        except OSError:
            continue
        with file:
            for text in read_lines(file, _LONGEST_LINE_BYTES):
                if b'"float16"' in text or b"fp16" in text:
                    recorded.coarse = recorded.coarse or "float16"
                if b"bfloat16" in text or b"bf16" in text:
                    recorded.coarse = "bfloat16"
                if text.startswith(b'{"k":"equal"'):
                    read(json.loads(text))
    return recorded


def read_lines_of(lines: Mapping[int, Sequence[dict[str, Any]]]) -> Recorded:
    """Read the steps from the lines of each rank."""
    recorded = Recorded()
    for rank, of_rank in lines.items():
        read = _line_reader(recorded, rank)
        for line in of_rank:
            read(line)
            recorded.coarse = recorded.coarse or line.get("cast", "")
    return recorded


def _line_reader(recorded: Recorded, rank: int) -> Callable[[dict[str, Any]], None]:
    """Return a function that reads the lines of one rank, in their order."""
    names, which, settings = recorded.names.setdefault(rank, {}), dict[int, Any](), dict[int, tuple[Any, str]]()

    def read(line: dict[str, Any]) -> None:
        if "why" in line:
            recorded.problems.append(f"rank {rank}: {line['why']}")
        if "loader" in line:
            recorded.loaders.append(line)
        steps = recorded.ranks.setdefault(rank, {})
        if "o" not in line:
            return
        number = line["o"]
        step = steps.setdefault((number, line["n"]), Step())
        if "located" in line:
            step.located = line
        elif "writes" in line:
            step.writes = line["writes"]
        else:
            if "model" in line:
                names[number] = [name for name, *_ in line["model"]]
                model = recorded.models.setdefault(rank, {})
                for name, dtype, shape, local, offset, adds, made in line["model"]:
                    at = None if offset is None else tuple(offset)
                    model[name] = Parameter(name, dtype, tuple(shape), tuple(local), at, adds, made)
                recorded.random += [one for one in line["random"] if one not in recorded.random]
            if "g" in line:
                which[number] = line["g"], line["s"]
            if "set" in line:
                settings[number] = line["set"], line.get("set_at", "")
            values = read_floats(line["f"])
            prints = (_read_print(values[at : at + 4]) for at in range(0, len(values), 4))
            step.at, step.facts = line.get("at", ""), line
            step.settings, step.settings_at = settings.get(number, (None, ""))
            known, (gradients, states) = names[number], which[number]
            step.tensors[PARAMETERS] = dict(zip(known, prints, strict=False))
            step.tensors[GRADIENTS] = {known[of]: next(prints) for of in gradients}
            for of, kind in states:
                step.tensors.setdefault(kind, {})[known[of]] = next(prints)

    return read


# -- tensors of all ranks


class Whole(NamedTuple):
    """A tensor, combined from the parts that ranks have."""

    value: Print
    weak: bool = False
    """Whether it is unknown where the parts belong."""
    ranks: tuple[int, ...] = ()


def combine_parts(parts: Mapping[int, tuple[Print, Parameter]], shape: tuple[int, ...]) -> list[Whole]:
    """Return the tensors of this shape that the ranks have: one for each rank, or one of all parts.

    Empty if the parts are not those of such a tensor.
    """
    if not parts:
        return []
    ranks, first = tuple(parts), next(iter(parts.values()))[1]
    if first.offset is not None:
        by_offset = dict[tuple[int, ...], Print]()
        for value, of in parts.values():
            if of.size:
                by_offset.setdefault(of.offset or (), value.moved(of.offset or ()))
        return [Whole(sum_prints(by_offset.values()), first.adds > 1, ranks)]
    if all(of.local == shape for _, of in parts.values()):
        return [Whole(value, False, (rank,)) for rank, (value, _) in parts.items()]
    distinct = list[tuple[Print, Parameter]]()
    for value, of in parts.values():
        is_known = any(one[1].local == of.local and _is_same(value, one[0]) for one in distinct)
        if not is_known and of.size:
            distinct.append((value, of))
    for chosen in ([*parts.values()], distinct):
        padded = sum(of.size for _, of in chosen) - math.prod(shape)
        if padded == 0 or (0 < padded < len(chosen) and len(shape) == 1):
            whole = _joined(chosen, shape)
            return [Whole(whole or sum_prints(value for value, _ in chosen), whole is None, ranks)]
    return []


def _joined(parts: Sequence[tuple[Print, Parameter]], shape: tuple[int, ...]) -> Print | None:
    """Return the tensor whose parts follow each other along the one dimension in which they are smaller."""
    if any(len(of.local) != len(shape) for _, of in parts):
        return None
    cut = [one for one, size in enumerate(shape) if any(of.local[one] != size for _, of in parts)]
    if len(cut) != 1:
        return None
    begin, moved = 0, list[Print]()
    for value, of in parts:
        moved.append(value.moved([begin if one == cut[0] else 0 for one in range(len(shape))]))
        begin += of.local[cut[0]]
    return sum_prints(moved)


def sum_prints(values: Iterable[Print]) -> Print:
    """Return the fingerprint of all parts together."""
    total = Print(0.0, 0.0, 0j)
    for value in values:
        total = total + value
    return total


def first_values(recorded: Recorded) -> dict[int, dict[str, Print]]:
    """Return the parameters before the first steps, by rank and name."""
    return {
        rank: {
            name: value
            for (_, number), step in steps.items()
            if number == 1
            for name, value in step.tensors.get(PARAMETERS, {}).items()
        }
        for rank, steps in recorded.ranks.items()
    }


def _is_same(one: Print, other: Print) -> bool:
    return estimate_distance(one, other, 1) <= 1e-6 * max(one.norm, 1e-30)


# -- the comparison


Unlike = Mapping[str, Sequence[tuple[Print, Whole]]]
"""Names of tensors that differ, each with the expected value and the deviating ones."""


class Difference(Frozen):
    """The first difference between two runs."""

    what: str
    """`samples`, `module output`, `loss`, `local gradient`, `reduced gradient`, `optimizer state`, `parameter`, or
    `steps`."""
    step: int
    """From 1; a parameter that differs before step 1 has step 0."""
    name: str = ""
    """The first parameter or module that differs."""
    names: tuple[str, ...] = ()
    """All that differ."""
    ranks: tuple[int, ...] = ()
    """The ranks that deviate; empty: all."""
    line: str = ""
    factor: float | None = None
    """How many times the expected value it is, if it is a multiple of it."""
    cause: str = ""
    """One of the names in docs/equal.md."""
    sentence: str = ""


class Comparison(Frozen):
    """The outcome of one comparison."""

    before: str
    """What the first run is, such as `1 rank`."""
    after: str
    steps: int
    """Steps that both made, and that do not depend on rounding."""
    tensors: int
    """Fingerprints that were compared."""
    tolerance: float
    """The largest relative tolerance."""
    largest: float
    """The largest relative difference up to the first real one."""
    difference: Difference | None = None
    problems: tuple[str, ...] = ()
    later: int = 0
    """Steps after these, which rounding changes too much to be compared."""

    @property
    def is_equal(self) -> bool:
        """Whether they compute the same."""
        return self.difference is None


class Comparer:
    """Compares a run with a reference.

    Args:
        reference: the run with the right values.
        other: the run to compare with it.
        again: a second run of the reference, with another order of summation; None: there is none.
        titles: what the two are, such as `1 rank` and `2 ranks`.
        least: least relative tolerance.
    """

    def __init__(
        self, reference: Recorded, other: Recorded, again: Recorded | None, titles: tuple[str, str], least: float = 0.0
    ) -> None:
        self._least = least
        self.reference, self.other, self._again = reference, other, again
        self._both = reference, other
        self.titles = titles
        self.until: int | None = None
        """The last step that was compared, if later ones depend on rounding."""
        self.tensors, self.tolerance, self.largest = 0, 0.0, 0.0
        self._noise = dict[tuple[str, str], float]()
        self._shapes = {name: one for model in reference.models.values() for name, one in model.items()}
        self._align_names()

    # -- names and shapes

    def _align_names(self) -> None:
        """Give parameters of the other run the reference's names, if all of a rank have the same first values."""
        expected = dict[str, Print]()
        for one in first_values(self.reference).values():
            expected |= {name: value for name, value in one.items() if name not in expected}
        for rank, values in first_values(self.other).items():
            if all(name in expected and _is_same(value, expected[name]) for name, value in values.items()):
                continue
            free, names = [*expected], dict[str, str]()
            for name, value in values.items():
                if (match := next((one for one in free if _is_same(value, expected[one])), None)) is not None:
                    names[name] = match
                    free = [one for one in free if one != match]
            if len(names) == len(values):
                self.other.rename(rank, names)

    def _parts(self, recorded: Recorded, steps: Mapping[int, Step], name: str, kind: str) -> dict[int, Any]:
        """Return the parts of a tensor by rank, each with its parameter; `kind` is one of `Step.tensors`."""
        return {
            rank: (values[name], recorded.models[rank][name])
            for rank, step in steps.items()
            if name in (values := step.tensors.get(kind, {})) and name in recorded.models.get(rank, {})
        }

    def _pairs(self, kind: str, name: str, mine: Mapping[int, Step], theirs: Mapping[int, Step]) -> Iterator[Any]:
        """Yield the expected fingerprint and each one that ranks have."""
        expected = self._parts(self.reference, mine, name, kind)
        actual = self._parts(self.other, theirs, name, kind)
        if not expected or not actual:
            return
        alike = len(expected) > 1 and expected.keys() == actual.keys()
        if alike and all(actual[rank][1].local == one[1].local for rank, one in expected.items()):
            for rank, (value, _) in expected.items():
                yield value, Whole(actual[rank][0], False, (rank,))
            return
        shape = next(iter(expected.values()))[1].shape
        wholes = combine_parts(expected, shape)
        for whole in combine_parts(actual, shape) if wholes else ():
            yield wholes[0].value, whole._replace(weak=whole.weak or wholes[0].weak)

    def _floor(self, dtype: str) -> float:
        coarse = max(self.reference.coarse, self.other.coarse, key=lambda one: _FLOORS.get(one, 0.0))
        return max(_FLOORS.get(dtype, 2e-5), _FLOORS.get(coarse, 0.0), self._least)

    # -- tolerances

    def _learn_noise(self, key: Key) -> float:
        """Note how far the reference is from its second run; return the part of all gradients that differs."""
        if self._again is None:
            return 0.0
        distance = size = 0.0
        theirs = self._again.at(key)
        for rank, step in self.reference.at(key).items():
            for kind, values in step.tensors.items() if rank in theirs else ():
                others = theirs[rank].tensors.get(kind, {})
                for name in values.keys() & others.keys():
                    gap = estimate_distance(values[name], others[name], 1)
                    if not math.isfinite(gap):
                        continue
                    self._noise[kind, name] = max(self._noise.get((kind, name), 0.0), gap)
                    if kind == GRADIENTS:
                        distance, size = distance + gap * gap, size + values[name].square
        return math.sqrt(distance / size) if size > 0 else 0.0

    def _limit(self, kind: str, name: str, expected: Print, other: Print, of_all: float) -> float:
        dtype = self._shapes[name].dtype if name in self._shapes else "float32"
        scale = max(expected.norm, other.norm) if expected.is_finite() and other.is_finite() else 1.0
        noise = _NOISE * self._noise.get((kind, name), 0.0)
        limit = max(self._floor(dtype) * scale, noise, (_OF_ALL + self._floor(dtype) / 30) * of_all)
        if scale and kind == GRADIENTS:
            self.tolerance = max(self.tolerance, min(1.0, limit / scale))
        return limit

    def _unlike(self, kind: str, mine: Mapping[int, Step], theirs: Mapping[int, Step]) -> Unlike:
        """Return the tensors that differ."""
        differing = dict[str, list[tuple[Print, Whole]]]()
        tables = [step.tensors.get(kind, {}) for step in mine.values()]
        squares = [one.square for table in tables[:1] for one in table.values() if one.is_finite()]
        of_all = math.sqrt(sum(squares)) if kind == GRADIENTS else 0.0
        for name in dict.fromkeys(chain(*tables)):
            count = math.prod(self._shapes[name].shape) if name in self._shapes else 1
            for expected, whole in self._pairs(kind, name, mine, theirs):
                self.tensors += 1
                gap = estimate_distance(expected, whole.value, count, weak=whole.weak)
                if gap > self._limit(kind, name, expected, whole.value, of_all):
                    differing.setdefault(name, []).append((expected, whole))
                elif expected.norm and math.isfinite(gap) and gap > of_all * _OF_ALL:
                    self.largest = max(self.largest, gap / expected.norm)
        return differing

    # -- what differs first

    def compare(self) -> tuple[Key | None, Difference | None]:
        """Return the step that has to be recorded in detail, if any, and the first difference."""
        keys, others = self.reference.keys(), self.other.keys()
        if not keys or not others:
            which = self.titles[0] if not keys else self.titles[1]
            known = f"the run with {which} has no step of an optimizer and no gradient to compare"
            return None, Difference(what="steps", step=0, cause="no steps", sentence=known)
        common = [key for key in keys if key in set(others)]
        for key in common:
            if self._learn_noise(key) > max(_CHAOS, self._floor("float32") * 5):
                self.until = key[1] - 1
                return None, None
            if (difference := self._compare_step(key)) is not None:
                return key, difference
        for number in {of for of, _ in common}:
            last = max(step for of, step in common if of == number)
            self._learn_noise((number, last + 1))
            ends = [run.ends(number) for run in self._both]
            counts = [max(step for of, step in run if of == number) for run in (keys, others)]
            if counts[0] == counts[1] and all(ends) and (unlike := self._unlike(PARAMETERS, *ends)):
                return (number, last), self._parameter_difference((number, last), unlike, ends[1])
            if counts[0] != counts[1]:
                return None, self._other_count(counts)
        if common and not self.tensors:
            known = f"nothing to compare: no parameter of {self.titles[1]} is one of {self.titles[0]}, or a part of it"
            return None, Difference(what="steps", step=0, cause="no steps", sentence=known)
        return None, None

    def _other_count(self, counts: Sequence[int]) -> Difference:
        sentence = (
            f"{self.titles[0]} {'makes' if self.titles[0].startswith('1 ') else 'make'} "
            f"{format_count(counts[0], 'step')}, {self.titles[1]} {format_count(counts[1], 'step')}"
        )
        return Difference(what="steps", step=min(counts) + 1, cause="number of steps", sentence=sentence)

    def _compare_step(self, key: Key) -> Difference | None:
        mine, theirs = self.reference.made(key), self.other.made(key)
        step = key[1]
        if unlike := self._unlike(PARAMETERS, mine, theirs):
            return self._parameter_difference((key[0], step - 1), unlike, theirs)
        if step > 1 and (state := self._unlike_states(key)):
            return state
        if unlike := self._unlike(GRADIENTS, mine, theirs):
            if self._is_compensated(key, unlike):
                return None
            return self._gradient_difference(key, unlike)
        return None

    def _unlike_states(self, key: Key) -> Difference | None:
        mine, theirs = self.reference.made(key), self.other.made(key)
        for kind in dict.fromkeys(kind for step in mine.values() for kind in step.states):
            if unlike := self._unlike(kind, mine, theirs):
                before, factor = (key[0], key[1] - 1), _factor_of_all(unlike)
                line = next((one.at for one in self.other.made(before).values()), "")
                sentence = f"{kind} of {_named(unlike)} differs after step {before[1]}{_factor_words(factor)}"
                what = "optimizer state"
                return _difference(what, before, unlike, what, sentence, line=line, factor=factor)
        return None

    def _is_compensated(self, key: Key, unlike: Unlike) -> bool:
        """Return whether other gradients train the same: other learning rates, or parameters that are averaged."""
        mine, theirs = self.reference.after(key), self.other.after(key)
        if not mine or not theirs or any(step.states for step in chain(mine.values(), theirs.values())):
            return self._has_scaled_rate(key, unlike)
        before, after = self.reference.at(key), self.reference.after(key)
        moved = False
        for name in unlike:
            one, other = (
                next(iter(self._parts(self.reference, of, name, PARAMETERS).values()))[0] for of in (before, after)
            )
            moved = moved or estimate_distance(one, other, 1) > 100 * self._limit(PARAMETERS, name, one, other, 0.0)
        return moved and self._trains_the_same(key)

    def _trains_the_same(self, key: Key) -> bool:
        """Return whether parameters that have gradients are the same after a step."""
        trained = {name for step in self.reference.made(key).values() for name in step.tensors[GRADIENTS]}
        return not trained & self._unlike(PARAMETERS, self.reference.after(key), self.other.after(key)).keys()

    def _has_scaled_rate(self, key: Key, unlike: Unlike) -> bool:
        factor = _factor_of_all(unlike)
        mine, theirs = (
            next((group.get("lr") for step in run.made(key).values() for group in step.settings or ()), None)
            for run in self._both
        )
        if factor is None or not mine or not theirs or abs(factor * theirs / mine - 1) > _SAME_FACTOR:
            return False
        return self._trains_the_same(key)

    # -- parameters

    def _parameter_difference(self, key: Key, unlike: Unlike, theirs: Mapping[int, Step]) -> Difference:
        name, step = next(iter(unlike)), key[1]
        ranks, made = deviating_ranks(unlike[name], self.other), self.other.made(key)
        whose = f" on {name_ranks(ranks)}" if ranks else ""

        def difference(cause: str, line: str, sentence: str) -> Difference:
            return _difference("parameter", key, unlike, cause, sentence, ranks=ranks, line=line)

        if step == 0:
            line = next((one.facts.get("forward") or one.at for one in theirs.values()), "")
            line = next((model[name].made for model in self.other.models.values() if name in model), "") or line
            why = "ranks start with different parameters" if ranks else "the initial parameters are others"
            sentence = f"{_named(unlike)} {_differs(unlike)} before the first step{whose}: {why}"
            return difference("initial parameters", line, sentence)
        line = next((one.at for one in made.values()), "")
        start = f"after step {step} {_named(unlike)} {_differs(unlike)}{whose}"
        if (changed := self._other_settings(key)) is not None:
            begun = {one.settings_at for one in self.other.made((key[0], 1)).values()}
            lines = [one.settings_at for one in made.values() if one.settings_at] or [line]
            line = next((at for at in lines if at not in begun), lines[0])
            setting, mine, other = changed
            sentence = f"{start}: {setting} is {other}, but {mine} with {self.titles[0]}"
            return difference("optimizer settings", line, sentence)
        if (state := self._unlike_states((key[0], step + 1))) is not None:
            loaded = [one.settings_at for one in made.values() if one.facts.get("loaded")]
            is_partial = 0 < len(loaded) < len(made)
            line = loaded[0] if is_partial else line
            sentence = f"{state.sentence.partition(';')[0]}{whose}: only some ranks loaded it" * is_partial
            return _difference(
                "optimizer state", key, unlike, state.cause, sentence or state.sentence, ranks=ranks, line=line
            )
        start += ", although its gradient was the same" * any(name in one.tensors[GRADIENTS] for one in made.values())
        writes = [
            at for rank, one in made.items() for _, at, of in one.writes if self.other.number_of(rank, key, name) in of
        ]
        if writes:
            line = writes[-1] or line
            return difference("parameter written", line, f"{start}: {line} changes it")
        sent = Counter(at for one in made.values() for operator, at, _ in one.writes if "c10d" in operator and at)
        if sent and ranks:
            line = sent.most_common(1)[0][0]
            return difference("not sent", line, f"{start}: {line} sends other parameters, but not this one")
        return difference("update", line, start)

    def _other_settings(self, key: Key) -> tuple[str, Any, Any] | None:
        """Return a setting of the optimizer with different values, and both."""
        expected = self.reference.made(key)
        for rank, step in self.other.made(key).items():
            mine = expected.get(rank, next(iter(expected.values()))).settings
            for one, other in zip(mine or (), step.settings or (), strict=False):
                for name in one.keys() & other.keys():
                    if isinstance(one[name], (int, float)) and not math.isclose(one[name], other[name], rel_tol=1e-9):
                        return {"lr": "the learning rate"}.get(name, name), one[name], other[name]
                    if isinstance(one[name], list) and one[name] != other[name]:
                        return name, one[name], other[name]
        return None

    # -- gradients

    def _gradient_difference(self, key: Key, unlike: Unlike) -> Difference:
        rules = (self._other_samples, self._other_outputs, self._untrained, self._other_reduction)
        return next((one for rule in rules if (one := rule(key, unlike))), None) or self._plain_gradient(key, unlike)

    def _other_samples(self, key: Key, unlike: Unlike) -> Difference | None:
        fed = {rank: step for rank, step in self.other.made(key).items() if step.facts.get("sums")}
        own = [step for step in self.reference.made(key).values() if step.facts.get("sums")]
        if not fed or not own or same_samples(own, [*fed.values()]):
            return None
        line = next((one["loader"] for one in self.other.loaders), "")
        line = line or next((one.facts.get("forward", "") for one in fed.values()), "")

        def difference(cause: str, sentence: str, **facts: Any) -> Difference:
            return replace(_difference("samples", key, unlike, cause, sentence, line=line, **facts), name="")

        if twins := alike_ranks(fed):
            is_fixed = len({one.get("rank") for one in self.other.loaders}) == 1
            sampler = next((one for one in self.other.loaders if is_fixed or not one.get("num_replicas")), None)
            chooses = f"the {sampler['sampler']} at {sampler['loader']}" if sampler else "what chooses them"
            sentence = (
                f"{name_ranks(twins)} trained on the same samples in step {key[1]}: {chooses} does not know the rank"
            )
            return difference("same samples", sentence, ranks=twins)
        expected = sum(one.facts["sums"][0] for one in distinct_steps(own))
        if (counted := sum(one.facts["sums"][0] for one in fed.values())) != expected:
            sentence = (
                f"step {key[1]} trains on {format_count(expected, 'sample')} with {self.titles[0]}, "
                f"and on {counted} with {self.titles[1]}"
            )
            if counted % expected == 0:
                sentence += ": the batch of a rank has a fixed size; divide it by the number of ranks to compare"
            return difference("number of samples", sentence, factor=round(counted / expected, 6))
        if self._same_overall(key[0]):
            sentence = f"step {key[1]} trains on other samples than with {self.titles[0]}: the data order differs"
            return difference("data order", sentence)
        sentence = f"step {key[1]} trains on samples that {self.titles[0]} does not train on in this step"
        return difference("other samples", sentence)

    def _same_overall(self, number: int) -> bool:
        steps = (
            [one for of in run.ranks.values() for key, one in of.items() if key[0] == number] for run in self._both
        )
        return are_near(*map(_all_rows, steps))

    def _other_outputs(self, key: Key, unlike: Unlike) -> Difference | None:
        """Return the first module whose output for the same sample differs."""
        expected, counts = (outputs_by_sample(run.made(key).values()) for run in self._both)
        is_cut = any(self._is_cut(*one) for model in self.other.models.values() for one in model.items())
        tolerance = self._floor("float32") * 5
        factors = dict[tuple[str, str, int], float]()
        for label, (_, by_sample) in expected.items():
            gap = compare_samples(by_sample, counts[label][1], tolerance) if label in counts else None
            if gap is not None:
                factors[label] = gap
        alike = {module for module, _, _ in expected.keys() & counts.keys()} - {module for module, _, _ in factors}
        for (module, kind, width), gap in factors.items():
            above = ["", *(module[:at] for at, sign in enumerate(module) if sign == ".")] if module else []
            if is_cut and (kind == "Linear" or any(one in alike for one in above)):
                continue  # it is a part of the output, which others complete
            title, line = f"{module or 'the model'} ({kind})", counts[module, kind, width][0]
            sentence = f"in step {key[1]} the output of {title} differs for the same sample"
            if "Dropout" in kind or any(not module or one.startswith(f"{module}.") for one in self.other.random):
                cause = "randomness"
                sentence += f": {join_words(self.other.random[:_MOST_NAMED]) or title} draws other numbers"
            elif "BatchNorm" in kind and "Sync" not in kind:
                cause = "batch statistics"
                sentence += ": it uses the mean and variance of the samples of one rank; use SyncBatchNorm"
            else:
                cause = "module output"
                sentence += f"{_factor_words(gap or None)}; {line} computes it"
            difference = _difference("module output", key, unlike, cause, sentence, line=line, factor=gap or None)
            return replace(difference, name=module or kind)
        return None

    def _is_cut(self, name: str, of: Parameter) -> bool:
        return name in self._shapes and of.local != self._shapes[name].local

    def _untrained(self, key: Key, unlike: Unlike) -> Difference | None:
        """Return the ranks that train a part of what others train, without this parameter."""
        name, theirs = next(iter(unlike)), self.other.made(key)
        trained = {rank: step.tensors[GRADIENTS].keys() for rank, step in theirs.items()}
        most = max(trained.values(), key=len)
        ranks = tuple(rank for rank, names in trained.items() if names and name in most - names and names < most)
        if not ranks:
            return None
        line = theirs[ranks[0]].settings_at
        start = f"in step {key[1]} {name_ranks(ranks)} had no gradient of {name}, and others had one"
        sentence = f"{start}: it is frozen there, or not in the optimizer"
        return _difference("local gradient", key, unlike, "not trained", sentence, ranks=ranks, line=line)

    def _other_reduction(self, key: Key, unlike: Unlike) -> Difference | None:
        """Explain gradients that ranks have not reduced, or not right."""
        name, theirs = next(iter(unlike)), self.other.made(key)
        parts, shape = self._parts(self.other, theirs, name, GRADIENTS), self._shapes[name].shape
        if len(parts) < 2 or any(of.local != shape or of.offset is not None for _, of in parts.values()):
            return None
        values, expected = [value for value, _ in parts.values()], unlike[name][0][0]
        limit = self._limit(GRADIENTS, name, expected, expected, 0.0) * 3
        ranks = deviating_ranks(unlike[name], self.other)
        if all(estimate_distance(value, values[0], 1) <= limit for value in values):
            return None
        history, step, named = self._history(self.other, key, name, shared=True), key[1], _named(unlike)
        agreed = [at for at, (_, _, agree) in enumerate(history) if agree and at]
        line, on = self._line_after(key, name, agreed[-1], ranks) if agreed else ("", [])
        if line:
            cause, only = "changed after the reduction", f" on {name_ranks(on)} only" * (len(on) < len(parts))
            sentence = f"in step {step} ranks had the same gradient of {named}, until {line} changed it{only}"
        else:
            back = next((one.facts.get("back", "") for one in theirs.values()), "")
            line, cause, mean = self._reducing_line(key) or back, "not reduced", mean_of(values)
            if cut := _close_waves(mean.times(len(values)), expected, limit) and self._cut_after(key, name):
                module, line = cut
                sentence = (
                    f"in step {step} the gradient of {named} is never reduced: ranks have parts of {module}, whose "
                    f"backward does not add up the gradients of its input, used at {line}"
                )
            elif any(_close_waves(mean.times(factor), expected, limit) for factor in (1.0, len(values))):
                reduced = any("c10d" in one.operator for one in self.other.events(next(iter(theirs)), key, name))
                what = f"is not reduced among all ranks by {line}" if reduced else "is never reduced"
                sentence = f"in step {step} the gradient of {named} {what}: ranks step with their own"
            else:
                sentence = f"in step {step} ranks step with different gradients of {named}"
                if ranks and line == back:
                    line, where, end = "", name_ranks(ranks), next(iter(theirs.values())).at
                    sentence += f", wrong on {where}: they change between {back} (backward) and {end} (step)"
        return _difference("reduced gradient", key, unlike, cause, sentence, line=line, ranks=ranks)

    def _line_after(self, key: Key, name: str, at: int, ranks: Sequence[int]) -> tuple[str, list[int]]:
        """Return the line that changed a gradient next, on one of these ranks if it can, and the ranks where it did.

        The line is "" if it can be another one: what the last one left was read again, perhaps to replace it.
        """
        lines = {
            rank: (one, of_rank[one] if values[one + 1 :] or self.other.events(rank, key, name)[-1].before else "")
            for rank, (of_rank, values) in self.other.values(key, name).items()
            for one in range(len(values) - 1, at, -1)
            if not _is_same(values[one - 1], values[one])
        }
        _, line = min([lines[rank] for rank in ranks if rank in lines] or lines.values(), default=(0, ""))
        return line, [rank for rank in lines if lines[rank][1] == line]

    def _cut_after(self, key: Key, name: str) -> tuple[str, str] | None:
        """Return the first module after that of a parameter whose parameters are cut, and its first line."""
        rank, step = next(iter(self.other.made(key).items()))
        cut = {one.rpartition(".")[0] for one, of in self.other.models[rank].items() if self._is_cut(one, of)}
        outputs = [(module, lines[1]) for module, _, lines, *_ in step.located.get("outputs", ())]
        before = [at for at, (module, _) in enumerate(outputs) if module == name.rpartition(".")[0]]
        return next((one for one in outputs[before[0] :] if one[0] in cut), None) if before else None

    def _reducing_line(self, key: Key) -> str:
        """Return the line that reduces most gradients."""
        lines = Counter(
            line
            for step in self.other.made(key).values()
            for operator, line, of, _ in step.located.get("events", ())
            if "c10d" in operator and of and line
        )
        return str(lines.most_common(1)[0][0]) if lines else ""

    def _plain_gradient(self, key: Key, unlike: Unlike) -> Difference:
        """Name the factor of a gradient that all ranks have, and the line from which it is wrong."""
        name, theirs = next(iter(unlike)), self.other.made(key)
        if (factor := _factor_of_all(unlike)) is None and len(unlike) > 1:
            factor = common_factor(unlike[name])
        expected, size = unlike[name][0][0], len(self.other.ranks)
        limit = self._limit(GRADIENTS, name, expected, expected, 0.0) * 3
        back = next((one.facts.get("back", "") for one in theirs.values() if name in one.tensors[GRADIENTS]), "")
        start = f"in step {key[1]} the gradient of {_named(unlike)} "
        start += "differs" if factor is None else f"is {factor:.3f} x that of {self.titles[0]}"

        def difference(what: str, cause: str, line: str, why: str) -> Difference:
            return _difference(what, key, unlike, cause, f"{start}{why}", line=line, factor=factor)

        history, is_smaller = self._history(self.other, key, name), factor is not None and 0 < factor < 1
        if (after := _after_last_right(history, expected, limit)) is not None:
            line = self._origin(key, name, _line_of_factor(history, after, factor), factor)
            verb = "averaged again" if is_smaller else "changed" if factor is None else "scaled"
            cause = "averaged again" if is_smaller else "changed after the reduction"
            return difference("reduced gradient", cause, line, f": it was right, and is {verb} at {line}")
        earlier = self._pairs(GRADIENTS, name, *(run.made((key[0], key[1] - 1)) for run in self._both))
        if any(_close_waves(one.value + unlike[name][0][0], unlike[name][0][1].value, limit) for _, one in earlier):
            why = f": that of step {key[1] - 1} is still in it; call zero_grad between {back} and the step before"
            return difference("local gradient", "not zeroed", back, why)
        local, right = (self._local_mean(run, key, name) for run in (self.other, self.reference))
        of_losses = self._loss_ratio(key)
        loss_at = next((one.located["loss_at"] for one in theirs.values() if one.located.get("loss_at")), "")
        scale = wave_ratio(local, right) if local and right else of_losses if local is None else None
        touching = self._reducing_line(key) or (history[-1][0] if history else back)
        if factor is not None and scale is not None and _is_near(scale, 1.0) and _is_near(factor, size):
            why = f": it is summed at {touching}, and never divided by the number of ranks"
            return difference("reduced gradient", "not divided", touching, why)
        if scale is not None and not _is_near(scale, 1.0):
            if of_losses is None or _is_near(of_losses, 1.0):
                line = self._backward_line(key, back)
                why = f"; so it is where ranks compute it, although the loss is right: {line} changes it"
                return difference("local gradient", "local gradient", line, why)
            if factor is not None and _is_near(scale, factor):
                which = "the loss" if local is None else "each rank's own gradient, before the reduction"
                why = f"; {which}, computed at {loss_at or back}, differs by the same factor"
                return difference("loss", "loss scaled", loss_at or back, why)
        if local is not None and right is not None and scale is None:
            line = self._backward_line(key, back)
            if line == back and loss_at and abs((of_losses or 1.0) - 1) > 5 * self._floor("float32"):
                why = f"; it already differs where ranks compute it, and so does the loss, computed at {loss_at}"
                return difference("loss", "loss scaled", loss_at, why)
            why = f"; it already differs where ranks compute it, at {line}{self._sent_by(key, name)}"
            return difference("local gradient", "local gradient", line, why)
        if factor is None and (line := self._first_unlike_line(key, unlike)):
            if (sending := self._origin(key, name, line, factor, "c10d")) != line:
                why = f": {sending} does not return the sum or mean of all ranks"
                return difference("reduced gradient", "reduction", sending, why)
            why = f": {line} changes it, before the mean of all ranks is known"
            return difference("reduced gradient", "changed too early", line, why)
        if is_smaller:
            line = self._origin(key, name, _line_of_factor(history, 0, factor), factor) if history else touching
            return difference("reduced gradient", "averaged again", line, f": it is divided too often, at {line}")
        return difference("reduced gradient", "reduction", touching, f"; {touching} is the last line that changes it")

    def _sent_by(self, key: Key, name: str) -> str:
        """Say which rank with a loss sent last before the step, if the ranks with a gradient have none."""
        theirs = self.other.made(key)
        if any(step.facts["loss"] for step in theirs.values() if name in step.tensors[GRADIENTS]):
            return ""
        sends = {
            rank: line
            for rank, step in theirs.items()
            for operator, line, *_ in step.located.get("events", ())
            if step.facts["loss"] and operator.startswith("c10d.send")
        }
        return "".join(f", from what rank {rank} sent at {line}" for rank, line in [*sends.items()][:1])

    def _backward_line(self, key: Key, back: str) -> str:
        """Return the only line of the script that scales tensors inside of backward, else the line that begins it."""
        lines = {
            str(line)
            for step in self.other.made(key).values()
            for operator, line in step.located.get("backward", ())
            if line not in ("", step.facts["back"]) and operator.partition(".")[2].startswith(_SCALES)
        }
        return lines.pop() if len(lines) == 1 else back

    def _origin(self, key: Key, name: str, line: str, factor: float | None, space: str = "") -> str:
        """Return the line that scaled what another line copied into a gradient, with an operator of this name space."""
        scales = ("",) if space else _SCALES if factor is None or 0 < factor < 1 else (*_SCALES, "allreduce")
        for rank in self.other.made(key):
            events = self.other.events(rank, key, name)
            ends = [number for number, one in enumerate(events) if one.before is not None and one.line == line]
            if not ends or not events[ends[-1]].operator.partition(".")[2].startswith(_COPIES):
                continue
            copied = takewhile(lambda one: one.before is None, reversed(events[: ends[-1]]))
            parts = ((one.line, *one.operator.partition(".")[::2]) for one in copied if one.line)
            if origin := next((at for at, of, verb in parts if of.startswith(space) and verb.startswith(scales)), ""):
                return origin
        return line

    def _loss_ratio(self, key: Key) -> float | None:
        """Return how many times the expected loss the mean of the ranks' losses is."""
        losses = [
            [sum(one.facts["loss"]) for one in run.made(key).values() if one.facts.get("loss")] for run in self._both
        ]
        if not all(losses) or not sum(losses[0]):
            return None
        expected, mean = (float(sum(of)) / len(of) for of in losses)
        return mean / expected

    def _history(self, recorded: Recorded, key: Key, name: str, *, shared: bool = False) -> History:
        """Return what changed a gradient; the first entry is about the time before.

        Ranks where other lines changed it have none, or with `shared` only its part before these lines.
        """
        by_rank, shape = recorded.values(key, name), self._shapes[name].shape
        of_ranks, parts = by_rank.values(), {rank: recorded.models[rank][name] for rank in by_rank}
        heads = zip(*(lines for lines, _ in of_ranks), strict=False)
        same = [lines[0] for lines in takewhile(lambda lines: len({*lines}) == 1, heads)]
        if not shared and any(lines != same for lines, _ in of_ranks):
            return []
        columns = [*zip(*(values[: len(same)] for _, values in of_ranks), strict=True)]
        if any(of.local != shape for of in parts.values()):  # shards
            of_parts = [[*zip(values, parts.values(), strict=True)] for values in columns]
            wholes = [combine_parts(dict(zip(parts, of, strict=True)), shape) for of in of_parts]
            return [(line, whole[0].value, True) for line, whole in zip(same, wholes, strict=True) if whole]
        agree = [all(estimate_distance(one, of[0], 1) <= 1e-3 * of[0].norm for one in of) for of in columns]
        return [*zip(same, map(mean_of, columns), agree, strict=True)]

    def _first_unlike_line(self, key: Key, names: Iterable[str]) -> str:
        """Return the first line after which gradients are no multiple of the right ones after the same line."""
        scales = dict[str, list[float | None]]()
        for name in islice(names, _MOST_COMPARED):
            right, other = ({line: value for line, value, _ in self._history(run, key, name)} for run in self._both)
            for line, value in other.items():
                if line and line in right:
                    scales.setdefault(line, []).append(wave_ratio(value, right[line]))
        for line, ratios in scales.items():
            if None in ratios or not all(_is_near(ratio, ratios[0] or 0.0) for ratio in ratios):
                return line
        return ""

    @staticmethod
    def _local_mean(recorded: Recorded, key: Key, name: str) -> Print | None:
        """Return the mean of the gradients that ranks computed themselves."""
        values = [
            _read_print(one)
            for rank, step in recorded.made(key).items()
            for number, one in step.located.get("local", ())
            if number == recorded.number_of(rank, key, name)
        ]
        return mean_of(values) if values else None


def _after_last_right(history: History, expected: Print, limit: float) -> int | None:
    """Return the first change after which a gradient that was right is wrong for good."""
    right = [at for at, (_, value, agree) in enumerate(history) if agree and _close_waves(value, expected, limit)]
    return right[-1] + 1 if right and right[-1] + 1 < len(history) else None


def _line_of_factor(history: History, first: int, factor: float | None) -> str:
    """Return the last line, from the first on, that makes a gradient larger, or smaller, as the factor says."""
    lines = []
    for at in range(max(1, first), len(history)):
        ratio = wave_ratio(history[at][1], history[at - 1][1])
        if factor is None or ratio is None or (ratio > 1.01 if factor > 1 else ratio < 0.99):
            lines.append(history[at][0])
    return history[max(1, first)][0] if factor is None or not lines else lines[-1]


# -- parts of sentences, and arithmetic


def _difference(what: str, key: Key, unlike: Unlike, cause: str, sentence: str, **facts: Any) -> Difference:
    names, line = tuple(unlike), facts.get("line", "")
    sentence += f"; see {line}" if line and line not in sentence else ""
    return Difference(what=what, step=key[1], name=names[0], names=names, cause=cause, sentence=sentence, **facts)


def _named(unlike: Mapping[str, Any]) -> str:
    names = [*unlike]
    rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0]}{rest}"


def _differs(unlike: Mapping[str, Any]) -> str:
    return "differ" if len(unlike) > 1 else "differs"


def _factor_words(factor: float | None) -> str:
    return "" if factor is None else f": it is {factor:.3f} x the expected one"


def _is_near(one: float | None, other: float) -> bool:
    return one is not None and abs(one - other) <= 5 * _SAME_FACTOR * abs(other)


def _close_waves(one: Print, other: Print, limit: float) -> bool:
    """Return whether two tensors are the same as far as what is linear in them shows."""
    difference = one.wave - other.wave
    return max(abs(difference.real), abs(difference.imag)) <= limit


def wave_ratio(one: Print, other: Print) -> float | None:
    """Return how many times the other a tensor is, by what is linear in it; None: it is no multiple."""
    if not abs(other.wave):
        return None
    ratio, limit = one.wave / other.wave, 5 * _SAME_FACTOR
    rest = abs(one.total - ratio.real * other.total)
    is_multiple = abs(ratio.imag) <= limit * abs(ratio.real) and rest <= limit * max(abs(one.total), abs(one.wave))
    return float(ratio.real) if is_multiple else None


def mean_of(values: Sequence[Print]) -> Print:
    """Return the fingerprint of the mean of tensors; its norm is unknown."""
    total = sum_prints(values)
    return Print(math.nan, total.total / len(values), total.wave / len(values))


def common_factor(pairs: Sequence[tuple[Print, Whole]]) -> float | None:
    """Return how many times the expected values all others are; None if they are no such multiple."""
    factors = list[float]()
    for expected, whole in pairs:
        value = whole.value
        if not expected.norm or not expected.is_finite() or not value.is_finite():
            return None
        factor = value.norm / expected.norm
        if (value.wave * expected.wave.conjugate()).real < 0:
            factor = -factor
        rest = max(abs(value.wave - expected.wave * factor), abs(value.total - expected.total * factor))
        if not whole.weak and rest > 5 * _SAME_FACTOR * abs(factor) * expected.norm:
            return None
        factors.append(factor)
    if not factors or max(factors) - min(factors) > 5 * _SAME_FACTOR * abs(factors[0]) or _is_near(factors[0], 1.0):
        return None
    return sum(factors) / len(factors)


def _factor_of_all(unlike: Unlike) -> float | None:
    return common_factor([*chain.from_iterable(unlike.values())])


def deviating_ranks(pairs: Sequence[tuple[Print, Whole]], recorded: Recorded) -> tuple[int, ...]:
    """Return the ranks that deviate, if others do not."""
    ranks = tuple(rank for _, whole in pairs for rank in whole.ranks)
    return ranks if len(ranks) < len(recorded.ranks) else ()


def are_near(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether two sorted lists of numbers are the same, but for rounding."""
    return len(one) == len(other) and all(
        math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6) for a, b in zip(one, other, strict=True)
    )


def distinct_steps(steps: Iterable[Step]) -> list[Step]:
    """Return steps without those that have the same samples as another."""
    distinct = list[Step]()
    for step in steps:
        if not any(are_near(_all_rows([one]), _all_rows([step])) for one in distinct):
            distinct.append(step)
    return distinct


def same_samples(mine: Sequence[Step], theirs: Sequence[Step]) -> bool:
    """Return whether ranks together read the same samples, or each rank all of them."""
    for one in ([*mine], distinct_steps(mine)):
        expected, sums = _all_rows(one), _all_sums(one)
        for other in ([*theirs], distinct_steps(theirs)):
            others = _all_sums(other)
            is_other_layout = sums[3] and others[1] == sums[1] and are_near(sums[2:], others[2:])
            if is_other_layout or are_near(expected, _all_rows(other)):
                return True
    return False


def _all_rows(steps: Iterable[Step]) -> list[float]:
    return sorted(value for step in steps for value in step.rows)


def _all_sums(steps: Iterable[Step]) -> list[float]:
    return [sum(values) for values in zip(*(step.facts["sums"] for step in steps), strict=True)]


def alike_ranks(steps: Mapping[int, Step]) -> tuple[int, ...]:
    """Return ranks that read the same samples."""
    for rank, step in steps.items():
        twins = tuple(
            other for other, one in steps.items() if step.rows and are_near(_all_rows([one]), _all_rows([step]))
        )
        if len(twins) > 1 and rank == twins[0]:
            return twins
    return ()


Outputs = dict[tuple[str, str, int], tuple[str, dict[float, float]]]
"""By module, its class, and the size of an output: the line that calls it, and a number for each sample."""


def outputs_by_sample(steps: Iterable[Step]) -> Outputs:
    """Return what modules computed for each sample, in the order of their first calls."""
    outputs: Outputs = {}
    for step in steps:
        calls = [read_floats(one) for one in step.located.get("rows", ())]
        for module, kind, (line, _), call, width, text in step.located.get("outputs", ()):
            values = read_floats(text)
            if not 0 < call <= len(calls) or len(calls[call - 1]) != len(values):
                continue
            by_sample = outputs.setdefault((module, kind, width), (line, {}))[1]
            for sample, value in zip(calls[call - 1], values, strict=True):
                by_sample.setdefault(round(sample, 5), value)
    return outputs


def compare_samples(mine: Mapping[float, float], theirs: Mapping[float, float], tolerance: float) -> float | None:
    """Return how many times the expected outputs others are, 0.0 if they are no multiple; None: they are the same."""
    common = [sample for sample in mine if sample in theirs]
    scale = max((abs(mine[sample]) for sample in common), default=0.0)
    if all(abs(mine[sample] - theirs[sample]) <= tolerance * scale for sample in common):
        return None
    factors = [theirs[sample] / mine[sample] for sample in common if mine[sample]]
    return factors[0] if factors and max(factors) - min(factors) <= 5 * _SAME_FACTOR * abs(factors[0]) else 0.0
