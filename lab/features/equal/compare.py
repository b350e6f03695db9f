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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
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

    @property
    def size(self) -> int:
        """The number of elements that this rank has."""
        return math.prod(self.local)


@dataclass
class Step:
    """What one rank did in one step."""

    at: str = ""
    parameters: dict[str, Print] = field(default_factory=dict)
    """Before the step."""
    gradients: dict[str, Print] = field(default_factory=dict)
    states: dict[tuple[str, str], Print] = field(default_factory=dict)
    """By parameter and name, before the step."""
    facts: dict[str, Any] = field(default_factory=dict)
    settings: Any = None
    settings_at: str = ""
    """The line that made the optimizer, or changed its settings last."""
    located: dict[str, Any] = field(default_factory=dict)
    writes: list[Any] = field(default_factory=list)

    @property
    def rows(self) -> list[float]:
        """A number for each of its samples."""
        return read_floats(self.facts.get("x", ""))


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
            step.parameters = {names.get(name, name): one for name, one in step.parameters.items()}
            step.gradients = {names.get(name, name): one for name, one in step.gradients.items()}
            step.states = {(names.get(name, name), of): one for (name, of), one in step.states.items()}

    def after(self, key: Key) -> dict[int, Step]:
        """Return the state after a step, by rank."""
        return self.at((key[0], key[1] + 1))


def read_floats(text: str) -> list[float]:
    """Return the float64 numbers that a line has in base64."""
    data = base64.b64decode(text)
    return list(struct.unpack(f"<{len(data) // 8}d", data))


def read_recorded(record: Record) -> Recorded:
    """Read the steps that a run recorded."""
    recorded = Recorded()
    for rank in sorted(record.workers()):
        reader = _Reader(recorded, rank)
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
                    reader.read(json.loads(text))
    return recorded


def read_lines_of(lines: Mapping[int, Sequence[dict[str, Any]]]) -> Recorded:
    """Read the steps from the lines of each rank."""
    recorded = Recorded()
    for rank, of_rank in lines.items():
        reader = _Reader(recorded, rank)
        for line in of_rank:
            reader.read(line)
            recorded.coarse = recorded.coarse or line.get("cast", "")
    return recorded


class _Reader:
    """Reads the lines of one rank, in their order."""

    def __init__(self, recorded: Recorded, rank: int) -> None:
        self._recorded, self._rank = recorded, rank
        self._names = recorded.names.setdefault(rank, {})
        self._which, self._settings = dict[int, tuple[Any, Any]](), dict[int, Any]()

    def read(self, line: dict[str, Any]) -> None:
        """Read one line."""
        steps = self._recorded.ranks.setdefault(self._rank, {})
        _read_line(self._recorded, self._rank, line, steps, self._names, self._which, self._settings)


def _read_line(
    recorded: Recorded,
    rank: int,
    line: dict[str, Any],
    steps: dict[Key, Step],
    names: dict[int, list[str]],
    which: dict[int, tuple[Any, Any]],
    settings: dict[int, Any],
) -> None:
    if "why" in line:
        recorded.problems.append(f"rank {rank}: {line['why']}")
    if "loader" in line:
        recorded.loaders.append({**line, "of": rank})
    if "o" not in line:
        return
    number, key = line["o"], (line["o"], line["n"])
    step = steps.setdefault(key, Step())
    if "located" in line:
        step.located = line
    elif "writes" in line:
        step.writes = line["writes"]
    else:
        if "model" in line:
            model = recorded.models.setdefault(rank, {})
            names[number] = [one[0] for one in line["model"]]
            for name, dtype, shape, local, offset, adds in line["model"]:
                at = None if offset is None else tuple(offset)
                model[name] = Parameter(name, dtype, tuple(shape), tuple(local), at, adds)
            recorded.random += [one for one in line["random"] if one not in recorded.random]
        if "g" in line:
            which[number] = line["g"], line["s"]
        if "set" in line:
            settings[number] = line["set"], line.get("set_at", "")
        values = read_floats(line["f"])
        prints = [_read_print(values[at : at + 4]) for at in range(0, len(values), 4)]
        known, (gradients, states) = names[number], which[number]
        step.at, step.facts = line.get("at", ""), line
        step.settings, step.settings_at = settings.get(number, (None, ""))
        step.parameters = dict(zip(known, prints, strict=False))
        rest = iter(prints[len(known) :])
        step.gradients = {known[of]: next(rest) for of in gradients}
        step.states = {(known[of], name): next(rest) for of, name in states}


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
        total = sum_prints(by_offset.values())
        return [Whole(total, first.adds > 1, ranks)]
    if all(of.local == shape for _, of in parts.values()):
        return [Whole(value, False, (rank,)) for rank, (value, _) in parts.items()]
    distinct = list[tuple[Print, Parameter]]()
    for value, of in parts.values():
        is_known = any(
            one[1].local == of.local and estimate_distance(one[0], value, 1) <= 1e-6 * value.norm for one in distinct
        )
        if not is_known and of.size:
            distinct.append((value, of))
    for chosen in ([*parts.values()], distinct):
        if sum(of.size for _, of in chosen) == math.prod(shape):
            whole = _joined(chosen, shape)
            plain = sum_prints(value for value, _ in chosen)
            return [Whole(whole or plain, whole is None, ranks)]
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
            name: value for (_, number), step in steps.items() if number == 1 for name, value in step.parameters.items()
        }
        for rank, steps in recorded.ranks.items()
    }


def _is_same(one: Print, other: Print) -> bool:
    return estimate_distance(one, other, 1) <= 1e-6 * max(one.norm, 1e-30)


# -- the comparison


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
        self,
        reference: Recorded,
        other: Recorded,
        again: Recorded | None,
        titles: tuple[str, str],
        least: float = 0.0,
    ) -> None:
        self._least = least
        self.reference, self.other, self._again = reference, other, again
        self.titles = titles
        self.until: int | None = None
        """The last step that was compared, if later ones depend on rounding."""
        self.tensors, self.tolerance, self.largest = 0, 0.0, 0.0
        self._noise = dict[tuple[str, str], float]()
        self._shapes = self._whole_shapes(reference)
        self._align_names()

    # -- names and shapes

    @staticmethod
    def _whole_shapes(recorded: Recorded) -> dict[str, Parameter]:
        return {name: one for model in recorded.models.values() for name, one in model.items()}

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
                match = next((one for one in free if _is_same(value, expected[one])), None)
                if match is not None:
                    names[name] = match
                    free = [one for one in free if one != match]
            if len(names) == len(values):
                self.other.rename(rank, names)

    def _parts(self, recorded: Recorded, steps: Mapping[int, Step], name: str, kind: str) -> dict[int, Any]:
        """Return the parts of a tensor by rank; `kind` is `parameters`, `gradients`, or a name of a state."""
        parts = dict[int, Any]()
        for rank, step in steps.items():
            of: dict[Any, Print] = step.states if kind not in ("parameters", "gradients") else getattr(step, kind)
            key = name if kind in ("parameters", "gradients") else (name, kind)
            if key in of and name in recorded.models.get(rank, {}):
                parts[rank] = of[key], recorded.models[rank][name]
        return parts

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
        whole = [0.0, 0.0]
        mine, theirs = self.reference.at(key), self._again.at(key)
        for rank, step in mine.items():
            if rank not in theirs:
                continue
            for kind in ("parameters", "gradients", "states"):
                for name, value in getattr(step, kind).items():
                    other = getattr(theirs[rank], kind).get(name)
                    if other is not None:
                        of = name if kind != "states" else name[0]
                        label = (kind if kind != "states" else name[1], of)
                        gap = estimate_distance(value, other, 1)
                        if math.isfinite(gap):
                            self._noise[label] = max(self._noise.get(label, 0.0), gap)
                            if kind == "gradients":
                                whole = [whole[0] + gap * gap, whole[1] + value.square]
        return math.sqrt(whole[0] / whole[1]) if whole[1] > 0 else 0.0

    def _limit(self, kind: str, name: str, expected: Print, other: Print, of_all: float) -> float:
        dtype = self._shapes[name].dtype if name in self._shapes else "float32"
        scale = max(expected.norm, other.norm) if expected.is_finite() and other.is_finite() else 1.0
        noise = _NOISE * self._noise.get((kind, name), 0.0)
        limit = max(self._floor(dtype) * scale, noise, (_OF_ALL + self._floor(dtype) / 30) * of_all)
        if scale:
            self.tolerance = max(self.tolerance, min(1.0, limit / scale)) if kind == "gradients" else self.tolerance
        return limit

    def _unlike(self, kind: str, mine: Mapping[int, Step], theirs: Mapping[int, Step]) -> dict[str, list[Any]]:
        """Return the names of tensors that differ, each with the expected value and the deviating ones."""
        differing, tables = dict[str, list[Any]](), [getattr(step, self._table(kind)) for step in mine.values()]
        names = list(dict.fromkeys(one if isinstance(one, str) else one[0] for table in tables for one in table))
        values = [
            value.square
            for table in tables[:1]
            for key, value in table.items()
            if (kind in ("parameters", "gradients") or key[1] == kind) and value.is_finite()
        ]
        of_all = math.sqrt(sum(values)) if kind == "gradients" else 0.0
        for name in names:
            count = math.prod(self._shapes[name].shape) if name in self._shapes else 1
            for expected, whole in self._pairs(kind, name, mine, theirs):
                self.tensors += 1
                gap = estimate_distance(expected, whole.value, count, weak=whole.weak)
                limit = self._limit(kind, name, expected, whole.value, of_all)
                if gap > limit:
                    differing.setdefault(name, []).append((expected, whole))
                elif expected.norm and math.isfinite(gap) and gap > of_all * _OF_ALL:
                    self.largest = max(self.largest, gap / expected.norm)
        return differing

    @staticmethod
    def _table(kind: str) -> str:
        return kind if kind in ("parameters", "gradients") else "states"

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
            difference = self._compare_step(key)
            if difference is not None:
                return key, difference
        for number in {of for of, _ in common}:
            last = max(step for of, step in common if of == number)
            self._learn_noise((number, last + 1))
            ends = [run.ends(number) for run in (self.reference, self.other)]
            counts = [max(step for of, step in run if of == number) for run in (keys, others)]
            if counts[0] == counts[1] and all(ends) and (unlike := self._unlike("parameters", *ends)):
                return (number, last), self._parameter_difference((number, last), unlike, ends[1])
            if counts[0] != counts[1]:
                return None, self._other_count(counts)
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
        if unlike := self._unlike("parameters", mine, theirs):
            return self._parameter_difference((key[0], step - 1), unlike, theirs)
        if step > 1 and (state := self._unlike_states(key)):
            return state
        if unlike := self._unlike("gradients", mine, theirs):
            if self._is_compensated(key, unlike):
                return None
            return self._gradient_difference(key, unlike)
        return None

    def _unlike_states(self, key: Key) -> Difference | None:
        mine, theirs = self.reference.made(key), self.other.made(key)
        for kind in dict.fromkeys(name for step in mine.values() for _, name in step.states):
            if unlike := self._unlike(kind, mine, theirs):
                name = next(iter(unlike))
                factor = common_factor([pair for pairs in unlike.values() for pair in pairs])
                line = next((one.at for one in self.other.made((key[0], key[1] - 1)).values()), "")
                sentence = f"{kind} of {_named(unlike)} differs after step {key[1] - 1}{_factor_words(factor)}"
                return Difference(
                    what="optimizer state", step=key[1] - 1, name=name, names=tuple(unlike), line=line, factor=factor,
                    cause="optimizer state", sentence=sentence,
                )  # fmt: skip
        return None

    def _is_compensated(self, key: Key, unlike: Mapping[str, list[Any]]) -> bool:
        """Return whether other gradients train the same: other learning rates, or parameters that are averaged."""
        mine, theirs = self.reference.after(key), self.other.after(key)
        if not mine or not theirs or any(step.states for step in chain(mine.values(), theirs.values())):
            return self._has_scaled_rate(key, unlike)
        before, after = self.reference.at(key), self.reference.after(key)
        moved = False
        for name in unlike:
            one, other = (
                next(iter(self._parts(self.reference, of, name, "parameters").values()))[0] for of in (before, after)
            )
            moved = moved or estimate_distance(one, other, 1) > 100 * self._limit("parameters", name, one, other, 0.0)
        if self._unlike("parameters", mine, theirs):
            return False
        return moved

    def _has_scaled_rate(self, key: Key, unlike: Mapping[str, list[Any]]) -> bool:
        factor = common_factor([pair for pairs in unlike.values() for pair in pairs])
        rates = [
            next((group.get("lr") for step in run.made(key).values() for group in step.settings or ()), None)
            for run in (self.reference, self.other)
        ]
        mine, theirs = rates
        if factor is None or not mine or not theirs or abs(factor * theirs / mine - 1) > _SAME_FACTOR:
            return False
        return not self._unlike("parameters", self.reference.after(key), self.other.after(key))

    # -- parameters

    def _parameter_difference(
        self, key: Key, unlike: Mapping[str, list[Any]], theirs: Mapping[int, Step]
    ) -> Difference:
        name, step = next(iter(unlike)), key[1]
        ranks = deviating_ranks(unlike[name], self.other)
        whose = f" on {name_ranks(ranks)}" if ranks else ""
        facts: dict[str, Any] = {
            "what": "parameter",
            "step": step,
            "name": name,
            "names": tuple(unlike),
            "ranks": ranks,
        }
        if step == 0:
            line = next((one.facts.get("forward") or one.at for one in theirs.values()), "")
            why = "ranks start with different parameters" if ranks else "the initial parameters are others"
            sentence = f"{_named(unlike)} {_differs(unlike)} before the first step{whose}: {why}"
            return Difference(**facts, line=line, cause="initial parameters", sentence=sentence)
        made = self.other.made(key)
        line = next((one.at for one in made.values()), "")
        start = f"after step {step} {_named(unlike)} {_differs(unlike)}{whose}"
        if (changed := self._other_settings(key)) is not None:
            line = next((one.settings_at for one in made.values() if one.settings_at), line)
            setting, mine, other = changed
            sentence = f"{start}: {setting} is {other}, but {mine} with {self.titles[0]}"
            return Difference(**facts, line=line, cause="optimizer settings", sentence=sentence)
        written = [
            (operator, at, [known[one] for one in of if one < len(known)])
            for rank, one in made.items()
            for known in [self._names_on(rank, key[0])]
            for operator, at, of in one.writes
        ]
        if own := [at for _, at, of in written if name in of]:
            line = own[-1] or line
            sentence = f"{start}, although its gradient was the same: {line} changes it"
            return Difference(**facts, line=line, cause="parameter written", sentence=sentence)
        sentence = f"{start}, although its gradient was the same"
        sent = Counter(at for operator, at, _ in written if "c10d" in operator and at)
        if sent and ranks:
            line = sent.most_common(1)[0][0]
            sentence += f": {line} sends other parameters, but not this one"
            return Difference(**facts, line=line, cause="not sent", sentence=sentence)
        return Difference(**facts, line=line, cause="update", sentence=sentence)

    def _other_settings(self, key: Key) -> tuple[str, Any, Any] | None:
        """Return a setting of the optimizer with different values, and both."""
        mine, theirs = (
            next((one.settings for one in run.made(key).values()), None) for run in (self.reference, self.other)
        )
        for one, other in zip(mine or (), theirs or (), strict=False):
            for name in one.keys() & other.keys():
                if isinstance(one[name], (int, float)) and not math.isclose(one[name], other[name], rel_tol=1e-9):
                    return {"lr": "the learning rate"}.get(name, name), one[name], other[name]
                if isinstance(one[name], list) and one[name] != other[name]:
                    return name, one[name], other[name]
        return None

    # -- gradients

    def _gradient_difference(self, key: Key, unlike: Mapping[str, list[Any]]) -> Difference:
        mine, theirs = self.reference.made(key), self.other.made(key)
        rules = (self._other_samples, self._other_outputs, self._other_reduction)
        for rule in rules:
            if (difference := rule(key, unlike, mine, theirs)) is not None:
                return difference
        return self._plain_gradient(key, unlike, theirs)

    def _other_samples(
        self, key: Key, unlike: Mapping[str, list[Any]], mine: Mapping[int, Step], theirs: Mapping[int, Step]
    ) -> Difference | None:
        fed = {rank: step for rank, step in theirs.items() if step.facts.get("sums")}
        own = [step for step in mine.values() if step.facts.get("sums")]
        if not fed or not own or same_samples(own, [*fed.values()]):
            return None
        line = next((one["loader"] for one in self.other.loaders), "")
        line = line or next((one.facts.get("forward", "") for one in fed.values()), "")
        expected = sum(one.facts["sums"][0] for one in distinct_steps(own))
        counted = sum(one.facts["sums"][0] for one in fed.values())
        facts: dict[str, Any] = {"what": "samples", "step": key[1], "name": "", "names": tuple(unlike), "line": line}
        if twins := alike_ranks(fed):
            sampler = next((one for one in self.other.loaders if not one.get("num_replicas")), None)
            why = f": the {sampler['sampler']} at {sampler['loader']} does not know the rank" if sampler else ""
            if why == "":
                why = ": what chooses them does not know the rank"
            sentence = f"{name_ranks(twins)} trained on the same samples in step {key[1]}{why}"
            return Difference(**facts, ranks=twins, cause="same samples", sentence=sentence)
        if counted != expected:
            ratio = counted / expected
            sentence = (
                f"step {key[1]} trains on {format_count(expected, 'sample')} with {self.titles[0]}, "
                f"and on {counted} with {self.titles[1]}"
            )
            if abs(ratio - round(ratio)) < 1e-9 and ratio > 1:
                sentence += ": the batch of a rank has a fixed size; divide it by the number of ranks to compare"
            return Difference(**facts, factor=round(ratio, 6), cause="number of samples", sentence=sentence)
        if self._same_overall(key[0]):
            sentence = f"step {key[1]} trains on other samples than with {self.titles[0]}: the data order differs"
            return Difference(**facts, cause="data order", sentence=sentence)
        sentence = f"step {key[1]} trains on samples that {self.titles[0]} does not train on in this step"
        return Difference(**facts, cause="other samples", sentence=sentence)

    def _same_overall(self, number: int) -> bool:
        every = []
        for run in (self.reference, self.other):
            steps = [step for one in run.ranks.values() for (of, _), step in one.items() if of == number]
            every.append(sorted(value for step in steps for value in step.rows))
        return are_near(*every)

    def _other_outputs(
        self, key: Key, unlike: Mapping[str, list[Any]], mine: Mapping[int, Step], theirs: Mapping[int, Step]
    ) -> Difference | None:
        """Return the first module whose output for the same sample differs."""
        expected, counts = outputs_by_sample(mine.values()), outputs_by_sample(theirs.values())
        is_cut = any(one.local != self._shapes[name].local for name, ones in self._by_name() for one in ones)
        tolerance = self._floor("float32") * 5
        factors = dict[tuple[str, str, int], float]()
        for label, (_, by_sample) in expected.items():
            gap = compare_samples(by_sample, counts[label][1], tolerance) if label in counts else None
            if gap is not None:
                factors[label] = gap
        differing = {module for module, _, _ in factors}
        alike = {module for module, _, _ in expected.keys() & counts.keys()} - differing
        for (module, kind, width), gap in factors.items():
            above = ["", *(module[:at] for at, sign in enumerate(module) if sign == ".")] if module else []
            if is_cut and (kind == "Linear" or any(one in alike for one in above)):
                continue  # it is a part of the output, which others complete
            title, line = f"{module or 'the model'} ({kind})", counts[module, kind, width][0]
            facts: dict[str, Any] = {"what": "module output", "step": key[1], "name": module or kind}
            facts |= {"names": tuple(unlike), "line": line, "factor": gap or None}
            sentence = f"in step {key[1]} the output of {title} differs for the same sample"
            if "Dropout" in kind or self._draws(module):
                random = join_words(self.other.random[:_MOST_NAMED]) or title
                sentence += f": {random} draws other numbers"
                return Difference(**facts, cause="randomness", sentence=sentence)
            if "BatchNorm" in kind and "Sync" not in kind:
                sentence += ": it uses the mean and variance of the samples of one rank; use SyncBatchNorm"
                return Difference(**facts, cause="batch statistics", sentence=sentence)
            sentence += f"{_factor_words(gap or None)}; {line} computes it"
            return Difference(**facts, cause="module output", sentence=sentence)
        return None

    def _by_name(self) -> Iterator[tuple[str, list[Parameter]]]:
        names = dict[str, list[Parameter]]()
        for model in self.other.models.values():
            for name, one in model.items():
                if name in self._shapes:
                    names.setdefault(name, []).append(one)
        yield from names.items()

    def _draws(self, module: str) -> bool:
        return any(not module or one.startswith(f"{module}.") for one in self.other.random)

    def _other_reduction(
        self, key: Key, unlike: Mapping[str, list[Any]], mine: Mapping[int, Step], theirs: Mapping[int, Step]
    ) -> Difference | None:
        """Explain gradients that ranks have not reduced, or not right."""
        name = next(iter(unlike))
        parts = self._parts(self.other, theirs, name, "gradients")
        expected = unlike[name][0][0]
        whole = len(parts) > 1 and all(
            of.local == self._shapes[name].shape and of.offset is None for _, of in parts.values()
        )
        if not whole:
            return None
        values = [value for value, _ in parts.values()]
        size, limit = len(values), self._limit("gradients", name, expected, expected, 0.0) * 3
        differ = any(estimate_distance(value, values[0], 1) > limit for value in values)
        total = mean_of(values).times(size)
        if differ:
            facts: dict[str, Any] = {"what": "reduced gradient", "step": key[1], "name": name, "names": tuple(unlike)}
            history = self._history(self.other, key, name)
            agreed = [at for at, (_, _, agree) in enumerate(history) if agree and at]
            if agreed and agreed[-1] + 1 < len(history):
                line = history[agreed[-1] + 1][0]
                sentence = f"in step {key[1]} ranks had the same gradient of {_named(unlike)}, until {line} changed it"
                return Difference(**facts, line=line, cause="changed after the reduction", sentence=sentence)
            line = self._reducing_line(key, name) or next((one.facts.get("back", "") for one in theirs.values()), "")
            if any(_close_waves(total.times(factor), expected, limit) for factor in (1 / size, 1.0)):
                sentence = (
                    f"in step {key[1]} the gradient of {_named(unlike)} is never reduced: ranks step with their own"
                )
                return Difference(**facts, line=line, cause="not reduced", sentence=sentence)
            sentence = f"in step {key[1]} ranks step with different gradients of {_named(unlike)}"
            return Difference(**facts, line=line, cause="not reduced", sentence=sentence)
        return None

    def _reducing_line(self, key: Key, name: str) -> str:
        """Return the line that reduces gradients of other parameters, or touches this one last."""
        lines = Counter[str]()
        for step in self.other.made(key).values():
            for operator, line, _, _ in step.located.get("events", ()):
                if "c10d" in operator and line:
                    lines[line] += 1
        return lines.most_common(1)[0][0] if lines else ""

    def _plain_gradient(self, key: Key, unlike: Mapping[str, list[Any]], theirs: Mapping[int, Step]) -> Difference:
        """Name the factor of a gradient that all ranks have, and the line from which it is wrong."""
        name = next(iter(unlike))
        factor = common_factor([pair for pairs in unlike.values() for pair in pairs])
        if factor is None and len(unlike) > 1:
            factor = common_factor(unlike[name])
        expected, size = unlike[name][0][0], len(self.other.ranks)
        limit = self._limit("gradients", name, expected, expected, 0.0) * 3
        back = next((one.facts.get("back", "") for one in theirs.values() if name in one.gradients), "")
        facts: dict[str, Any] = {"step": key[1], "name": name, "names": tuple(unlike), "factor": factor}
        start = f"in step {key[1]} the gradient of {_named(unlike)} "
        start += "differs" if factor is None else f"is {factor:.3f} x that of {self.titles[0]}"
        history = self._history(self.other, key, name)
        if (after := _after_last_right(history, expected, limit)) is not None:
            line = self._origin(key, name, _line_of_factor(history, after, factor), factor)
            is_again = factor is not None and 0 < factor < 1
            verb = "averaged again" if is_again else "changed" if factor is None else "scaled"
            cause = "averaged again" if is_again else "changed after the reduction"
            sentence = f"{start}: it was right, and is {verb} at {line}"
            return Difference(what="reduced gradient", **facts, line=line, cause=cause, sentence=sentence)
        local = self._local_mean(self.other, key, name)
        right = self._local_mean(self.reference, key, name)
        scale = wave_ratio(local, right) if local is not None and right is not None else None
        touching = self._reducing_line(key, name) or (history[-1][0] if history else back)
        if scale is None and local is None:
            scale = self._loss_ratio(key)
        if factor is not None and scale is not None and _is_near(scale, 1.0) and _is_near(factor, size):
            sentence = f"{start}: it is summed at {touching}, and never divided by the number of ranks"
            return Difference(what="reduced gradient", **facts, line=touching, cause="not divided", sentence=sentence)
        of_losses = self._loss_ratio(key)
        if scale is not None and not _is_near(scale, 1.0) and (of_losses is None or _is_near(of_losses, 1.0)):
            line = self._backward_line(key, back)
            sentence = f"{start}; so it is where ranks compute it, although the loss is right: {line} changes it"
            return Difference(what="local gradient", **facts, line=line, cause="local gradient", sentence=sentence)
        if scale is not None and not _is_near(scale, 1.0) and factor is not None and _is_near(scale, factor):
            line = next((one.located["loss_at"] for one in theirs.values() if one.located.get("loss_at")), back)
            which = "so is the loss" if local is None else "so is the gradient of each rank before the reduction"
            sentence = f"{start}: {which}, which {line} computes"
            return Difference(what="loss", **facts, line=line, cause="loss scaled", sentence=sentence)
        if local is not None and right is not None and scale is None:
            line = self._backward_line(key, back)
            sentence = f"{start}; it already differs where ranks compute it, at {line}"
            return Difference(what="local gradient", **facts, line=line, cause="local gradient", sentence=sentence)
        if factor is None and (line := self._first_unlike_line(key, unlike)):
            sentence = f"{start}: {line} changes it, before the mean of all ranks is known"
            return Difference(what="reduced gradient", **facts, line=line, cause="changed too early", sentence=sentence)
        if factor is not None and 0 < factor < 1:
            line = self._origin(key, name, _line_of_factor(history, 0, factor), factor) if history else touching
            sentence = f"{start}: it is divided too often, at {line}"
            return Difference(what="reduced gradient", **facts, line=line, cause="averaged again", sentence=sentence)
        sentence = f"{start}; {touching} is the last line that changes it"
        return Difference(what="reduced gradient", **facts, line=touching, cause="reduction", sentence=sentence)

    def _backward_line(self, key: Key, back: str) -> str:
        """Return the only line of the script that scales tensors inside of backward, else the line that begins it."""
        lines = {
            str(line)
            for step in self.other.made(key).values()
            for operator, line in step.located.get("backward", ())
            if line not in ("", step.facts["back"]) and operator.partition(".")[2].startswith(_SCALES)
        }
        return lines.pop() if len(lines) == 1 else back

    def _origin(self, key: Key, name: str, line: str, factor: float | None) -> str:
        """Return the line that scaled what another line copied into a gradient."""
        for rank, step in self.other.made(key).items():
            known = self._names_on(rank, key[0])
            events = [
                (operator.partition(".")[2], at, bool(before))
                for operator, at, of, before in step.located.get("events", ())
                if any(one < len(known) and known[one] == name for one in of)
            ]
            ends = [number for number, (_, at, direct) in enumerate(events) if direct and at == line]
            if not ends or not events[ends[-1]][0].startswith(_COPIES):
                continue
            for operator, at, is_direct in reversed(events[: ends[-1]]):
                if is_direct:
                    break
                if at and operator.startswith(_SCALES if factor is None or 0 < factor < 1 else (*_SCALES, "allreduce")):
                    return str(at)
        return line

    def _loss_ratio(self, key: Key) -> float | None:
        """Return how many times the expected loss the mean of the ranks' losses is."""
        losses = [
            [sum(step.facts["loss"]) for step in run.made(key).values() if step.facts.get("loss")]
            for run in (self.reference, self.other)
        ]
        if not all(losses) or not sum(losses[0]):
            return None
        expected, mean = (float(sum(of)) / len(of) for of in losses)
        return mean / expected

    def _history(self, recorded: Recorded, key: Key, name: str) -> History:
        """Return what changed a gradient; the first entry is about the time before."""
        of_ranks = []
        for rank, step in recorded.made(key).items():
            known = recorded.names.get(rank, {}).get(key[0], [])
            events = [
                (line, _read_print(before[of.index(at)]))
                for _, line, of, before in step.located.get("events", ())
                if before
                for at in of
                if at < len(known) and known[at] == name
            ]
            if events and name in step.gradients:
                lines = ["", *(line for line, _ in events)]
                of_ranks.append((lines, [*(value for _, value in events), step.gradients[name]]))
        if not of_ranks or any(lines != of_ranks[0][0] for lines, _ in of_ranks):
            return []
        columns = [*zip(*(values for _, values in of_ranks), strict=True)]
        agree = [all(estimate_distance(one, of[0], 1) <= 1e-3 * of[0].norm for one in of) for of in columns]
        return [*zip(of_ranks[0][0], map(mean_of, columns), agree, strict=True)]

    def _names_on(self, rank: int, number: int) -> list[str]:
        return self.other.names.get(rank, {}).get(number, [])

    def _first_unlike_line(self, key: Key, names: Iterable[str]) -> str:
        """Return the first line after which gradients are no multiple of the right ones after the same line."""
        scales = dict[str, list[float | None]]()
        for name in islice(names, _MOST_COMPARED):
            right, other = (
                {line: value for line, value, _ in self._history(run, key, name)}
                for run in (self.reference, self.other)
            )
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
        values = []
        for rank, step in recorded.made(key).items():
            known = recorded.names.get(rank, {}).get(key[0], [])
            values += [
                _read_print(one) for at, one in step.located.get("local", ()) if at < len(known) and known[at] == name
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
        if not any(are_near(sorted(one.rows), sorted(step.rows)) for one in distinct):
            distinct.append(step)
    return distinct


def same_samples(mine: Sequence[Step], theirs: Sequence[Step]) -> bool:
    """Return whether ranks together read the same samples, or each rank all of them."""
    for one in ([*mine], distinct_steps(mine)):
        expected = sorted(value for step in one for value in step.rows)
        sums = [sum(values) for values in zip(*(step.facts["sums"] for step in one), strict=True)]
        for other in ([*theirs], distinct_steps(theirs)):
            if are_near(expected, sorted(value for step in other for value in step.rows)):
                return True
            others = [sum(values) for values in zip(*(step.facts["sums"] for step in other), strict=True)]
            if (
                sums[3]
                and others[1] == sums[1]
                and all(
                    math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6) for a, b in zip(sums[2:], others[2:], strict=True)
                )
            ):
                return True  # in another layout
    return False


def alike_ranks(steps: Mapping[int, Step]) -> tuple[int, ...]:
    """Return ranks that read the same samples."""
    for rank, step in steps.items():
        twins = tuple(
            other for other, one in steps.items() if step.rows and are_near(sorted(one.rows), sorted(step.rows))
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
        for module, kind, line, call, width, text in step.located.get("outputs", ()):
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
