"""Projects runs: what is measured of their calls and cores, and the step times of larger worlds."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from lab.errors import LabError
from lab.features.network_model.alpha_beta import Line, line_through
from lab.features.projection.costs import LIBRARIES, MEASURED, Cost, Layout, Pattern, Target, choices, pattern_of
from lab.features.projection.growth import Growth, growth_of, pipeline_of, with_stages
from lab.features.projection.program import AT_ONCE, OPTIMIZER, Flight, Program, flights_of, own_work, program_of
from lab.features.projection.replay import (
    Action,
    Clock,
    Key,
    Machine,
    Replayed,
    Transfer,
    Work,
    Working,
    World,
    machine_of,
    replay,
)
from lab.features.traffic.traffic import size_of
from lab.operations import operation
from lab.trace.model import Trace
from lab.trace.steps import match
from lab.trace.timing import Span
from lab.words import plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was measured of the calls of one operation with one size in groups of so many ranks."""

    op: str
    ranks: int
    bytes: float
    seconds: float
    """Median, from when the last rank had entered and what was before it was over; on cores of its own."""
    ran_s: float
    """How long the threads that carry them ran for each, in the mean."""
    count: int
    each: tuple[float, ...] = ()
    """What each of those took that are in the steps of the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What fits the calls of one operation."""

    op: str
    library: str
    algorithm: str
    line: Line
    samples: tuple[Sample, ...]
    shared: bool
    """Whether it was fitted to all operations together, as this one alone does not tell alpha from bandwidth."""

    @property
    def error(self) -> float:
        """Root of the mean square of its relative errors."""
        return self.line.error

    @property
    def spread(self) -> tuple[float, ...]:
        """What each call took, as a part of what it ought to have taken: it may be much more, now and then."""
        return tuple(each / ought for sample, ought in self._ought() for each in sample.each if ought > 0)

    def _ought(self) -> Iterator[tuple[Sample, float]]:
        for sample in self.samples:
            cost = recorded_cost(sample.op, sample.ranks, sample.bytes, self.library)
            yield sample, self.line.seconds(cost.rounds, cost.bytes)


def samples_of(flights: Sequence[Flight], clock: Clock, settled: Collection[int], ran: float) -> list[Sample]:
    """By operation, ranks and size; the first of each is left out where others follow.

    Args:
        flights: of a run.
        clock: of its cores.
        settled: numbers of the collectives and messages of its program.
        ran: for what part of the time that they took by the clock the threads that carry them ran.

    Of messages only those count that were waited for, if there are any: of one that is fetched late nobody knows how
    long it took.
    """
    taken: dict[tuple[str, int, int], list[tuple[bool, bool, float]]] = defaultdict(list)
    for flight in flights:
        step = flight.step
        seconds = sum(clock.between(flight.begin, end) for end in flight.ends.values()) / len(flight.ends)
        if seconds > 0:
            within = step.number in settled
            taken[step.op, len(step.expected), size_of(step)].append((flight.late, within, seconds))
    found = []
    for (op, ranks, size), all_of_it in sorted(taken.items()):
        measured = [one for one in all_of_it if not one[0]] or all_of_it
        kept = [seconds for _, _, seconds in measured[1:] or measured]
        each = tuple(seconds for _, within, seconds in measured if within)
        ran_s = ran * sum(kept) / len(kept)
        found.append(
            Sample(op=op, ranks=ranks, bytes=size, seconds=median(kept), ran_s=ran_s, count=len(kept), each=each)
        )
    return found


def fit_all(samples: Iterable[Sample], library: str, crowded: bool = False) -> dict[str, Fit]:
    """By operation. Where one alone does not tell alpha from bandwidth, it has those of all together.

    What is not called in the steps of the program counts only where they do not tell: there are few such calls.
    Where it was crowded, a call costs what its threads ran: its time says how long they were queued for a core.
    """
    if crowded:
        samples = [replace(sample, seconds=sample.ran_s) for sample in samples]
    by_op: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_op[sample.op].append(sample)
    together = [sample for of_op in by_op.values() for sample in of_op]
    fits = {}
    for op, of_op in by_op.items():
        stepping = [sample for sample in of_op if sample.each]
        alone = next((some for some in (stepping, of_op) if some and _tells_both(some, library)), None)
        used = alone or together
        fits[op] = Fit(
            op=op,
            library=library,
            algorithm=recorded_algorithm(op, library),
            line=_through(used, library),
            samples=tuple(of_op),
            shared=alone is None and len(by_op) > 1,
        )
    return fits


def recorded_algorithm(op: str, library: str) -> str:
    """What the library takes where the ranks of a record are: the first that it has."""
    return next(iter(choices(library, pattern_of(operation(op)), Layout(2))))


def recorded_cost(op: str, ranks: int, size: float, library: str) -> Cost:
    """The rounds and bytes of a call of a record."""
    formulas = choices(library, pattern_of(operation(op)), Layout(ranks))
    return next(iter(formulas.values()))(Layout(ranks), size)


def _through(samples: Sequence[Sample], library: str) -> Line:
    costs = [recorded_cost(one.op, one.ranks, one.bytes, library) for one in samples]
    return line_through([one.rounds for one in costs], [one.bytes for one in costs], [one.seconds for one in samples])


def _tells_both(samples: Sequence[Sample], library: str) -> bool:
    """Whether bytes for a round differ enough among them that alpha and bandwidth can be told from one another."""
    if pattern_of(operation(samples[0].op)) is Pattern.BARRIER:
        return True
    costs = [recorded_cost(one.op, one.ranks, one.bytes, library) for one in samples]
    amounts = [one.bytes / one.rounds for one in costs if one.rounds]
    return max(amounts) > 1.5 * min(amounts)


def pooled_error(fits: Iterable[Fit]) -> float:
    """Root of the mean square of the errors at all of their samples."""
    errors = [error for fit in fits for error in fit.line.errors]
    return math.sqrt(sum(error * error for error in errors) / len(errors)) if errors else 0.0


_MOST_WANTED = 2.0
"""Cores that a rank may want while data is on its way: a thread that carries it, and one that reduces it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A run on record, as far as it is needed."""

    run: str
    trace: Trace
    program: Program
    samples: Sequence[Sample]
    library: str
    """What carried its bytes, as `lab.features.projection.costs` names it."""
    machine: Machine | None
    """That all its ranks shared; None where they had several machines, or the record does not tell."""
    carrying: float
    """How many cores a rank wanted while data was on its way."""
    crowded: bool
    """Whether the threads that carry calls were queued for a core for longer than they ran."""


def source_of(run: str, trace: Trace) -> Source:
    """What there is to be projected of a run.

    Raises:
        LabError: it has no training steps, too few of them, or no communication in them.
    """
    cannot = f"run {run} cannot be projected"
    if not any(mark.name == OPTIMIZER for rank in trace.ranks.values() for mark in rank.marks):
        raise LabError(
            f"{cannot}: it has no training steps",
            "a training step lies between two steps of an optimizer of torch.optim, on every rank",
        )
    steps = match(trace)
    backends = [group.backend for group in trace.groups.values() if group.backend]
    library = next((name for name in LIBRARIES for backend in backends if name in backend), "gloo")
    flights = flights_of(steps, library)
    working = _working(trace, flights)
    machine = _shared_machine(trace, working)
    clock = Clock(working, machine)
    program = program_of(trace, steps, flights, clock, working[0].wanting)
    if program is None:
        raise LabError(
            f"{cannot}: it has no two training steps in which all ranks called the same and were done",
            "what comes before the first step of the optimizer does not count: it takes three steps, better ten",
        )
    if not program.transfers:
        raise LabError(
            f"{cannot}: its ranks do not communicate in their training steps",
            "a run of one rank tells nothing of a network; run it with --nodes 2"
            if len(trace.ranks) == 1
            else "between two steps of an optimizer no rank called a collective, or sent anything",
        )
    return Source(
        run=run,
        trace=trace,
        program=program,
        samples=samples_of(flights, clock, program.settled, _ran(trace, working[1], clock)),
        library=library,
        machine=machine,
        carrying=working[1].wanting,
        crowded=sum(rank.cores.beside.queued_s - rank.cores.beside.ran_s for rank in trace.ranks.values()) > 0,
    )


def _working(trace: Trace, flights: Sequence[Flight]) -> tuple[Working, Working]:
    """The own work of all ranks, and data on its way, each with how many cores it wanted."""
    own, moving = own_work(trace), [span for flight in flights for span in flight.spans]
    had = [rank.cores for rank in trace.ranks.values()]

    def wanting(spans: Sequence[Span], wanted_s: float) -> float:
        told = sum(end - begin for begin, end in _looked_at(spans, trace))
        return wanted_s / told if told and wanted_s else 1.0

    of_own = wanting(own, sum(cores.own.wanted_s for cores in had))
    of_moving = wanting(moving, sum(cores.beside.wanted_s for cores in had))
    return Working(own, min(1.0, of_own)), Working(moving, min(_MOST_WANTED, of_moving))


def _looked_at(spans: Sequence[Span], trace: Trace) -> list[Span]:
    """What of them lies between the first and the last look at how long threads had run."""
    had = [rank.cores.own for rank in trace.ranks.values()]
    first, last = min(own.begin for own in had), max(own.end for own in had)
    return [(max(begin, first), min(end, last)) for begin, end in spans if end > first and begin < last]


def _ran(trace: Trace, moving: Working, clock: Clock) -> float:
    """For what part of the time that calls took by the clock the threads that carry them ran; 1 where nobody knows."""
    told = clock.of(_looked_at(moving.spans, trace))
    ran = sum(rank.cores.beside.ran_s for rank in trace.ranks.values())
    return ran / told if told and ran else 1.0


def _shared_machine(trace: Trace, working: Sequence[Working]) -> Machine | None:
    had = [rank.cores for rank in trace.ranks.values()]
    counts = [cores.count for cores in had if cores.count]
    if len({cores.kernel for cores in had}) > 1 or not counts:
        return None
    ran, wanted = (
        sum(getattr(of, name) for cores in had for of in (cores.own, cores.beside)) for name in ("ran_s", "wanted_s")
    )
    if not wanted:
        return Machine(min(counts))
    trained = min(
        mark.end for rank in trace.ranks.values() for mark in rank.marks if mark.name == OPTIMIZER and mark.end
    )
    settled = [one._replace(spans=[span for span in one.spans if span[0] >= trained]) for one in working]
    return machine_of(settled, min(counts), ran / wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The transfers of one kind in a training step."""

    op: str
    ranks: int
    bytes: float
    count: int
    """In a step, of all groups of the run on record."""
    algorithm: str
    seconds: float
    """Of each, when nothing else goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is said of one world; seconds of a training step, of a rank."""

    ranks: int
    step_s: float
    low_s: float
    high_s: float
    own_s: float
    exposed_s: float
    """Held up by calls with data on its way."""
    waiting_s: float
    """Held up by calls, waiting for others."""
    hidden_s: float
    """Of own work: with data on its way."""
    measured_s: float | None
    """Where the world is one on record: median of its steps."""
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What larger worlds would take, as far as runs tell."""

    runs: tuple[tuple[str, int], ...]
    """Those that it rests on, with their ranks; the last is the one that is replayed."""
    network: str
    library: str
    """What chooses among algorithms."""
    machine: Machine | None
    """That all ranks of a world share; None: each has cores of its own."""
    fits: Mapping[str, Fit]
    """What the runs tell of their network, by operation."""
    error: float
    """By what part transfers may be off."""
    checks: tuple[Row, ...]
    """The worlds on record, replayed in the same way: how far off that is."""
    rows: tuple[Row, ...]
    assumed: tuple[str, ...]
    steps: int
    """Of the run that is replayed."""
    left_out: int


PLAYERS = 32
"""So many ranks are replayed at most; where there are more, each stands for several."""
WORLDS = (8, 64, 512, 4096)
"""Where nobody says which."""
_PROFILE_ERROR = 0.25
"""By what part transfers may take longer or shorter over a network that nobody has measured."""
_WIDENING = 0.25
"""By what part of itself an interval is wider for each doubling of the ranks on record."""


def project(
    sources: Sequence[Source],
    ranks: Sequence[int] | None,
    target: Target | None,
    library: str | None = None,
    others: float | None = None,
) -> Projection:
    """What a training step takes in worlds of so many ranks.

    Args:
        sources: runs of the same training; the one with most ranks is replayed, all tell of the network.
        ranks: sizes of the worlds; None: those of `WORLDS` that the runs can be projected to.
        target: their network, where each rank has cores of its own; None: the one on record, with its cores.
        library: what chooses among algorithms; None: that of the record on its network, and nccl elsewhere.
        others: programs that want a core beside the ranks, on the machine of the record; None: as many as on record.

    Raises:
        LabError: the runs are not of one training, or cannot be projected to such a world.
    """
    sources = sorted(sources, key=lambda source: source.program.ranks)
    base = sources[-1]
    for source in sources:
        _check_alike(source, base)
    growth = growth_of(base.program, base.trace)
    used = {transfer.op for transfer in base.program.transfers.values()}
    samples = [sample for source in sources for sample in source.samples if sample.op in used]
    fits = fit_all(samples, base.library, any(source.crowded for source in sources))
    recorded = _Network(None, base.library, base.library, fits)
    network = recorded if target is None else _Network(target, library or "nccl", base.library, fits)
    checks = [_check(source, growth, recorded) for source in sources]
    off = max(abs(math.log((row.measured_s or row.step_s) / row.step_s)) for row in checks)
    sizes = ranks or [count for count in WORLDS if not count % growth.replica and count <= growth.most]
    machines = _machines(sources, others) if target is None else []
    return Projection(
        runs=tuple((source.run, source.program.ranks) for source in sources),
        network=target.name if target is not None else MEASURED,
        library=network.library,
        machine=machines[0] if machines else None,
        fits=fits,
        error=network.error,
        checks=tuple(checks),
        rows=tuple(_row(base, count, growth, network, machines, off) for count in sorted(set(sizes))),
        assumed=growth.assumed,
        steps=len(base.program.steps_s),
        left_out=base.program.left_out,
    )


def _machines(sources: Sequence[Source], others: float | None) -> list[Machine]:
    """That of the largest run, with as many others on it as beside the runs on average, as few, and as many at most."""
    base = sources[-1].machine
    if base is None:
        return []
    found = [source.machine.others for source in sources if source.machine is not None]
    told = [sum(found) / len(found), min(found), max(found)] if others is None else [others]
    return [replace(base, others=one) for one in told]


def _check_alike(one: Source, other: Source) -> None:
    ops = [Counter(transfer.op for transfer in source.program.transfers.values()) for source in (one, other)]
    if ops[0].keys() != ops[1].keys():
        told = [", ".join(sorted(found)) for found in ops]
        raise LabError(
            f"runs {one.run} and {other.run} are not of one training: "
            f"in a step, the first calls {told[0]}, the second {told[1]}",
            "give runs of the same script with different numbers of ranks",
        )


@dataclass(frozen=True, slots=True)
class _Network:
    """What transfers take: as they were measured, or as a network would have it."""

    target: Target | None
    library: str
    recorded: str
    """The library of the record."""
    fits: Mapping[str, Fit]

    @property
    def error(self) -> float:
        """By what part it may be off."""
        return pooled_error(self.fits.values()) if self.target is None else _PROFILE_ERROR

    @property
    def spread(self) -> dict[str, tuple[float, ...]]:
        """How its calls vary, by operation; of a network that was not measured nobody knows."""
        return {op: fit.spread for op, fit in self.fits.items()} if self.target is None else {}

    def recorded_s(self, op: str, ranks: int, size: float) -> float:
        """What such a call ought to have taken on record."""
        cost = recorded_cost(op, ranks, size, self.recorded)
        return self.fits[op].line.seconds(cost.rounds, cost.bytes) if ranks > 1 and op in self.fits else 0.0

    def call(self, op: str, ranks: int, size: float, grown: bool) -> Call:
        """How long one takes, and by what algorithm."""
        if self.target is None:
            return Call(op=op, ranks=ranks, bytes=size, count=1, seconds=self.recorded_s(op, ranks, size),
                        algorithm=recorded_algorithm(op, self.recorded))  # fmt: skip
        pattern = pattern_of(operation(op))
        layout = Layout(ranks, min(self.target.racks, ranks) if grown else 1)
        named = choices(self.library, pattern, layout)
        taken = {name: self.target.seconds(formula(layout, size)) for name, formula in named.items()}
        algorithm = min(taken, key=lambda name: taken[name])
        return Call(op=op, ranks=ranks, bytes=size, count=1, seconds=taken[algorithm], algorithm=algorithm)


@dataclass(frozen=True, slots=True)
class _Grown:
    """The programs and transfers of a world."""

    turns: Mapping[int, Sequence[Sequence[Action]]]
    transfers: Mapping[Key, Transfer]
    calls: Mapping[Key, Call]
    parts: Mapping[Key, Sequence[Mapping[int, float]]]
    common: frozenset[str]
    copies: int
    weight: float
    carrying: float

    def replayed(self, machine: Machine | None, network: _Network, slower: float = 1.0) -> Replayed:
        return replay(
            World(
                turns=self.turns,
                transfers=self.transfers,
                parts=self.parts if network.target is None else {},
                spread=network.spread,
                at_once=AT_ONCE.get(network.library, 1),
                carrying=self.carrying,
                seconds={key: call.seconds * slower for key, call in self.calls.items()},
                copies=self.copies,
                common=self.common,
                weight=self.weight,
                machine=machine,
            )
        )


def _grow(source: Source, ranks: int, growth: Growth, network: _Network) -> _Grown:
    program, factor = source.program, ranks / source.program.ranks
    transfers: Mapping[Key, Transfer] = program.transfers
    turns: Mapping[int, Sequence[Sequence[Action]]] = program.turns
    copies, weight = 1, 1.0
    if growth.stages:
        if ranks != program.ranks:
            turns, transfers = with_stages(program, pipeline_of(program), ranks)
    else:
        copies = max(1, min(math.ceil(factor), PLAYERS // program.ranks))
        weight = factor / copies
        turns = {
            rank: [[_scaled(action, growth, factor) for action in actions] for actions in steps]
            for rank, steps in program.turns.items()
        }
    calls = {}
    for key, transfer in transfers.items():
        grown = transfer.group in growth.groups and pattern_of(operation(transfer.op)) is not Pattern.MESSAGE
        size = max(1, round(len(transfer.ranks) * factor)) if grown else len(transfer.ranks)
        calls[key] = network.call(transfer.op, size, growth.size(transfer, factor), grown)
    common = frozenset(
        key.lane
        for key, transfer in transfers.items()
        if transfer.group in growth.groups and pattern_of(operation(transfer.op)) is not Pattern.MESSAGE
    )
    parts = {
        key: [{rank: one / ought for rank, one in of_step.items()} for of_step in program.took_s.get(key, ())]
        for key, transfer in transfers.items()
        if (ought := network.recorded_s(transfer.op, len(transfer.ranks), transfer.size)) > 0
    }
    return _Grown(turns, transfers, calls, parts, common, copies, weight, source.carrying)


def _scaled(action: Action, growth: Growth, factor: float) -> Action:
    if isinstance(action, Work):
        return action.times(growth.work(action.phase, factor))
    return action


def _check(source: Source, growth: Growth, network: _Network) -> Row:
    """A world on record, replayed."""
    ranks = source.program.ranks
    own = growth if growth.stages else growth_of(source.program, source.trace)
    return _told(
        source,
        ranks,
        _grow(source, ranks, own, network),
        [source.machine] if source.machine else [],
        network,
        0.0,
        source.program.steps_s,
    )


def _row(source: Source, ranks: int, growth: Growth, network: _Network, machines: Sequence[Machine], off: float) -> Row:
    if ranks % growth.replica or not 2 <= ranks <= growth.most:
        allowed = f"multiples of {growth.replica}" if growth.replica > 1 else "2 and more"
        raise LabError(
            f"run {source.run} cannot be projected to {ranks:,} ranks; allowed: {allowed}, up to {growth.most:,}",
            f"{plural(growth.replica, 'rank')} hold a copy of the model together" if growth.replica > 1 else "",
        )
    same = ranks == source.program.ranks and network.target is None
    return _told(
        source,
        ranks,
        _grow(source, ranks, growth, network),
        machines,
        network,
        off,
        source.program.steps_s if same else (),
    )


def _told(
    source: Source,
    ranks: int,
    grown: _Grown,
    machines: Sequence[Machine],
    network: _Network,
    off: float,
    measured_s: Sequence[float],
) -> Row:
    machine = machines[0] if machines else None
    found = grown.replayed(machine, network)
    fast, slow = (grown.replayed(machine, network, 1 + sign * network.error).step_s for sign in (-1, 1))
    least, most = (grown.replayed(one, network).step_s for one in machines[1:] or (machine, machine))
    moved, beside = ((high - low) / 2 / found.step_s for low, high in ((fast, slow), (least, most)))
    distance = 1 + _WIDENING * max(0.0, math.log2(ranks / source.program.ranks))
    wide = distance * math.sqrt(moved**2 + beside**2 + off**2 + _variation(source.program.steps_s) ** 2)
    kinds = Counter((call.op, call.ranks, call.bytes, call.algorithm, call.seconds) for call in grown.calls.values())
    return Row(
        ranks=ranks,
        step_s=found.step_s,
        low_s=found.step_s * math.exp(-wide),
        high_s=found.step_s * math.exp(wide),
        own_s=found.own_s,
        exposed_s=found.exposed_s,
        waiting_s=found.waiting_s,
        hidden_s=found.hidden_s,
        measured_s=median(measured_s) if measured_s else None,
        calls=tuple(
            Call(op=op, ranks=of, bytes=size, count=count, algorithm=algorithm, seconds=seconds)
            for (op, of, size, algorithm, seconds), count in kinds.items()
        ),
    )


def _variation(steps_s: Sequence[float]) -> float:
    """How far steps are from their median: the distance that two in three of them keep, as a part of it."""
    middle = median(steps_s)
    distances = sorted(abs(one - middle) / middle for one in steps_s)
    return distances[min(len(distances) - 1, math.ceil(0.68 * len(distances)) - 1)]
