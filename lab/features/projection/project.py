"""`lab project`: the time of a training step of a recorded run on larger worlds and over other networks.

Examples:
  lab project --ranks 8,16                                the latest run, on larger worlds of the same kind
  lab project RUN --ranks 8,64,512,4096 --network lan-100g,racks=16
  lab project RUN-OF-2 RUN-OF-4 --ranks 8 --svg steps.svg  fitted to both

--network NAME[,racks=N][,rate=100gbit][,between=10gbit][,alpha=10us]: a profile of `network:` and changes to it.
`measured`: the network and the cores of the record. docs/projection.md lists the assumptions and their errors.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from lab.cli import arguments as shared
from lab.errors import LabError, UsageError
from lab.features.network_model.model import Line, line_through
from lab.features.projection import costs
from lab.features.projection import program as training
from lab.features.projection.cores import ThreadTime, cores_of
from lab.features.projection.replay import Clock, Machine, Work, Working, World, machine_of, replay_world
from lab.features.stragglers.timing import Span
from lab.features.timeline.svg import Plot, Shapes, draw_text, render_sheet
from lab.features.traffic.traffic import size_of
from lab.frozen import Frozen
from lab.operations import get_operation
from lab.record.read import find_record
from lab.report.style import Style, table_text
from lab.trace.model import Trace
from lab.trace.read import open_trace
from lab.trace.steps import match_steps
from lab.words import NONE, format_bytes, format_count, format_duration, format_rate, group_pairs, join_words

PLAYERS = 32
"""At most this many ranks are replayed; in larger worlds each stands for several."""
WORLDS = (8, 64, 512, 4096)
"""Default sizes of worlds."""
_MOST_WANTED = 2.0
"""Cores that a rank may want while data is in flight: one for the thread that sends it, one for the thread that
reduces it.
"""
_PROFILE_ERROR = 0.25
"""Relative error of transfers over a network that was not measured."""
_WIDENING = 0.25
"""An interval widens by this share for each doubling of the recorded ranks."""


# -- the network in a record


@dataclass(frozen=True, slots=True)
class Sample:
    """A measurement: the calls of one operation with one size in groups of one size."""

    op: str
    ranks: int
    bytes: float
    seconds: float
    """Median duration, from the entry of the last rank and the end of earlier transfers; on separate cores."""
    ran_s: float
    """Mean time that the threads that carry a call ran."""
    count: int
    each: tuple[float, ...]
    """Durations of those calls that are in the steps of the program."""
    cost: costs.Cost
    """The rounds and bytes of each call."""


class Fit(NamedTuple):
    """Alpha and bandwidth that fit the calls of one operation."""

    algorithm: str
    line: Line
    samples: tuple[Sample, ...]
    shared: bool
    """Whether all operations were fitted together, because this one alone does not separate alpha from bandwidth."""

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second; None if time does not grow with bytes."""
        return 1 / self.line.inverse if self.line.inverse else None

    @property
    def spread(self) -> tuple[float, ...]:
        """The duration of each call relative to the expected one; single calls may take much longer."""
        times = ((sample, self.line.seconds(*sample.cost[:2])) for sample in self.samples)
        return tuple(each / expected_s for sample, expected_s in times for each in sample.each if expected_s > 0)


def recorded_cost(op: str, ranks: int, size: float, library: str) -> tuple[str, costs.Cost]:
    """Return the algorithm that the library uses on the recorded layout, and the cost of a call."""
    layout = costs.Layout(ranks)
    name, formula = next(iter(costs.list_choices(library, costs.pattern_of(get_operation(op)), layout).items()))
    return name, formula(layout, size)


def _samples_of(
    flights: Sequence[training.Flight], clock: Clock, settled: Collection[int], ran: float, library: str
) -> list[Sample]:
    """Return samples by operation, ranks, and size; the first call of each is left out if there are more.

    Only messages that a rank waited for count, if there are any: the duration of a message that is fetched late is
    unknown.

    Args:
        flights: The flights of a run.
        clock: The clock of its cores.
        settled: Numbers of the collectives and messages of its program.
        ran: The share of their duration for which the threads that carry calls ran.
        library: The library that carried their bytes.
    """
    times: dict[tuple[str, int, int], list[tuple[bool, bool, float]]] = defaultdict(list)
    for flight in flights:
        step = flight.step
        seconds = sum(clock.between(flight.begin, end) for end in flight.ends.values()) / len(flight.ends)
        if seconds > 0:
            times[step.op, len(step.expected), size_of(step)].append((flight.late, step.number in settled, seconds))
    samples = []
    for (op, ranks, size), measured in sorted(times.items()):
        punctual = [one for one in measured if not one[0]] or measured
        kept = [seconds for _, _, seconds in punctual[1:] or punctual]
        each = tuple(seconds for _, within, seconds in punctual if within)
        _, cost = recorded_cost(op, ranks, size, library)
        samples.append(Sample(op, ranks, size, median(kept), ran * mean(kept), len(kept), each, cost))
    return samples


def _fit_all(samples: Iterable[Sample], library: str, crowded: bool) -> dict[str, Fit]:
    """Return a fit for each operation; an operation that does not separate alpha from bandwidth uses all operations.

    Calls outside of the program's steps count only if the others are not enough. If cores were crowded, the cost of a
    call is the running time of its threads, because its duration includes queueing for a core.
    """
    by_op = group_pairs((one.op, replace(one, seconds=one.ran_s) if crowded else one) for one in samples)
    together = [sample for of_op in by_op.values() for sample in of_op]
    fits = {}
    for op, of_op in by_op.items():
        stepping = [sample for sample in of_op if sample.each]
        alone = next((some for some in (stepping, of_op) if some and _separate_costs(some)), None)
        rounds, sizes, seconds = zip(*((*one.cost[:2], one.seconds) for one in alone or together), strict=True)
        algorithm, _ = recorded_cost(op, 2, 0, library)
        fits[op] = Fit(algorithm, line_through(rounds, sizes, seconds), tuple(of_op), alone is None and len(by_op) > 1)
    return fits


def _separate_costs(samples: Sequence[Sample]) -> bool:
    """Return whether bytes per round differ enough between samples to separate alpha from bandwidth."""
    amounts = [sample.cost.bytes / sample.cost.rounds for sample in samples if sample.cost.rounds]
    return max(amounts) > 1.5 * min(amounts) or costs.pattern_of(get_operation(samples[0].op)) is costs.Pattern.BARRIER


# -- the source of a projection


class Source(NamedTuple):
    """A recorded run, as far as the projection needs it."""

    run: str
    program: training.Program
    growth: training.Growth
    samples: Sequence[Sample]
    library: str
    """The library that carried its bytes, by its name in `lab.features.projection.costs`."""
    machine: Machine | None
    """The machine that all its ranks shared; None if there were several, or if the trace does not say."""
    carrying: float
    """Number of cores that a rank wanted while data was in flight."""
    crowded: bool
    """Whether the threads that carry calls queued for a core for longer than they ran."""


def source_of(run: str, trace: Trace) -> Source:
    """Return the contribution of a run to a projection.

    Raises:
        LabError: It has no training steps, too few of them, or no communication in them.
    """
    cannot = f"cannot project run {run}"
    if not any(phase.name == training.OPTIMIZER for rank in trace.ranks.values() for phase in rank.phases):
        hint = "a training step is the time between two steps of an optimizer of torch.optim, on every rank"
        raise LabError(f"{cannot}: it has no training steps", hint)
    steps = match_steps(trace)
    backends = [group.backend for group in trace.groups.values() if group.backend]
    library = next((name for name in costs.LIBRARIES for backend in backends if name in backend), "gloo")
    flights = training.flights_of(steps, library)
    cores = [cores_of(rank) for rank in trace.ranks.values()]
    first, last = min(one.own.begin for one in cores), max(one.own.end for one in cores)

    def known(spans: Sequence[Span]) -> list[Span]:
        """The part of them between the first and last sample of how long threads had run."""
        return [(max(begin, first), min(end, last)) for begin, end in spans if end > first and begin < last]

    def working(spans: Sequence[Span], threads: Sequence[ThreadTime], most: float) -> Working:
        """The number of cores that they wanted."""
        known_s = sum(end - begin for begin, end in known(spans))
        wanted_s = sum(one.wanted_s for one in threads)
        return Working(spans, min(most, wanted_s / known_s if known_s and wanted_s else 1.0))

    others = [one.other_threads for one in cores]
    own = working(training.own_work(trace), [one.own for one in cores], 1.0)
    moving = working([span for flight in flights for span in flight.spans], others, _MOST_WANTED)
    machine = _shared_machine(trace, (own, moving))
    clock = Clock((own, moving), machine)
    if (program := training.program_of(trace, steps, flights, clock, own.wanting)) is None:
        why = f"{cannot}: it has no two complete training steps with the same calls on all ranks"
        hint = "steps count after the first step of the optimizer: run at least three steps, preferably ten"
        raise LabError(why, hint)
    if not program.transfers:
        raise LabError(
            f"{cannot}: its ranks do not communicate in their training steps",
            "a run of one rank has no data about a network; run it with --nodes 2"
            if len(trace.ranks) == 1
            else "between two steps of an optimizer, no rank called a collective or sent a message",
        )
    ran_s = sum(one.ran_s for one in others)
    moved_s = clock.of(known(moving.spans))
    ran, crowded = ran_s / moved_s if moved_s and ran_s else 1.0, sum(one.queued_s for one in others) > ran_s
    samples, growth = _samples_of(flights, clock, program.settled, ran, library), training.growth_of(program, trace)
    return Source(run, program, growth, samples, library, machine, moving.wanting, crowded)


def _shared_machine(trace: Trace, working: Sequence[Working]) -> Machine | None:
    cores = [cores_of(rank) for rank in trace.ranks.values()]
    counts = [one.count for one in cores if one.count]
    if len({one.kernel for one in cores}) > 1 or not counts:
        return None
    threads = [thread for one in cores for thread in (one.own, one.other_threads)]
    ran, wanted = sum(thread.ran_s for thread in threads), sum(thread.wanted_s for thread in threads)
    if not wanted:
        return Machine(min(counts))
    phases = [phase for rank in trace.ranks.values() for phase in rank.phases]
    trained = min((phase.end for phase in phases if phase.name == training.OPTIMIZER and phase.end), default=0.0)
    settled = [one._replace(spans=[span for span in one.spans if span[0] >= trained]) for one in working]
    return machine_of(settled, min(counts), ran / wanted)


# -- larger worlds


class Call(Frozen):
    """The transfers of one kind in a training step."""

    op: str
    ranks: int
    bytes: float
    count: int = 1
    """Per step, in all groups of the recorded run."""
    algorithm: str
    seconds: float
    """Duration of each call when nothing else runs."""


class Row(Frozen):
    """The result for one world; seconds of a training step of a rank."""

    ranks: int
    step_s: float
    low_s: float
    high_s: float
    own_s: float
    exposed_s: float
    """Blocked by calls while data was in flight."""
    waiting_s: float
    """Blocked by calls while it waited for other ranks."""
    hidden_s: float
    """Own work while data was in flight."""
    measured_s: float | None
    """Median of the recorded steps; None if no run has this size."""
    calls: tuple[Call, ...]

    @property
    def known_s(self) -> float:
        """The measured duration, or else that of the replay."""
        return self.measured_s or self.step_s


class Projection(Frozen):
    """The projected training steps of larger worlds."""

    runs: tuple[tuple[str, int], ...]
    """The runs that it is based on, with their ranks; the last is the one that is replayed."""
    network: str
    library: str
    """The library that chooses among algorithms."""
    machine: Machine | None
    """The machine that all ranks of a world share; None: each has separate cores."""
    fits: Mapping[str, Fit]
    """The fitted network of the runs, by operation."""
    error: float
    """Relative error of transfers."""
    checks: tuple[Row, ...]
    """The recorded worlds, replayed in the same way, which shows the error of the replay."""
    rows: tuple[Row, ...]
    assumed: tuple[str, ...]
    steps: int
    """The number of steps of the replayed run."""
    left_out: int


def project_run(
    sources: Sequence[Source],
    ranks: Sequence[int] | None,
    target: costs.Target | None,
    library: str | None = None,
    others: float | None = None,
) -> Projection:
    """Project a training step to worlds of other sizes.

    Args:
        sources: Runs of the same training; the one with most ranks is replayed, all contribute to the network.
        ranks: Sizes of the worlds; None: those of `WORLDS` that the runs can be projected to.
        target: Their network, with separate cores for each rank; None: the recorded one, with its cores.
        library: The library that chooses among algorithms; None: the recorded one on its network, and nccl elsewhere.
        others: Other programs that want a core on the recorded machine; None: as many as recorded.

    Raises:
        LabError: The runs are not of the same training, or cannot be projected to such a world.
    """
    sources = sorted(sources, key=lambda source: source.program.ranks)
    base = sources[-1]
    ops = {transfer.op for transfer in base.program.transfers.values()}
    for source in sources:
        if (ops_of_source := {transfer.op for transfer in source.program.transfers.values()}) != ops:
            first, second = ", ".join(sorted(ops_of_source)), ", ".join(sorted(ops))
            calls = f"a step of the first calls {first}, a step of the second {second}"
            why = f"runs {source.run} and {base.run} are not of the same training: {calls}"
            raise LabError(why, "name runs of the same script with different numbers of ranks")
    growth = base.growth
    samples = [sample for source in sources for sample in source.samples if sample.op in ops]
    fits = _fit_all(samples, base.library, any(source.crowded for source in sources))
    recorded = _Network(None, base.library, base.library, fits)
    network = recorded if target is None else _Network(target, library or "nccl", base.library, fits)
    checks = [_row(one, one.program.ranks, recorded, [one.machine] if one.machine else []) for one in sources]
    sizes = ranks or [count for count in WORLDS if not count % growth.replica and count <= growth.most]
    for size in sizes:
        if size % growth.replica or not 2 <= size <= growth.most:
            allowed = f"multiples of {growth.replica}" if growth.replica > 1 else "2 and more"
            raise LabError(
                f"cannot project run {base.run} to {size:,} ranks; allowed: {allowed}, up to {growth.most:,}",
                f"{format_count(growth.replica, 'rank')} together hold one copy of the model"
                if growth.replica > 1
                else "",
            )
    machines = _machines(sources, others) if target is None else []
    off = max(abs(math.log(row.known_s / row.step_s)) for row in checks)
    return Projection(
        runs=tuple((source.run, source.program.ranks) for source in sources),
        network=target.name if target is not None else costs.MEASURED,
        library=network.library,
        machine=machines[0] if machines else None,
        fits=fits,
        error=network.error,
        checks=tuple(checks),
        rows=tuple(_row(base, size, network, machines, off) for size in sorted(set(sizes))),
        assumed=growth.assumed,
        steps=len(base.program.steps_s),
        left_out=base.program.left_out,
    )


def _machines(sources: Sequence[Source], others: float | None) -> list[Machine]:
    """Return the machine of the largest run, with the mean, the least, and the greatest number of other programs."""
    base = sources[-1].machine
    if base is None:
        return []
    counts = [source.machine.others for source in sources if source.machine is not None]
    shown = [sum(counts) / len(counts), min(counts), max(counts)] if others is None else [others]
    return [replace(base, others=one) for one in shown]


class _Network(NamedTuple):
    """The duration of transfers, as measured or as a network profile predicts it."""

    target: costs.Target | None
    library: str
    recorded: str
    """The library of the record."""
    fits: Mapping[str, Fit]

    @property
    def error(self) -> float:
        """Relative error of a duration: the root mean square of the errors of all samples."""
        if self.target is not None:
            return _PROFILE_ERROR
        errors = [error for fit in self.fits.values() for error in fit.line.errors]
        return math.sqrt(sum(error * error for error in errors) / len(errors)) if errors else 0.0

    def recorded_call(self, op: str, ranks: int, size: float) -> Call:
        """Return the expected cost of such a call on the recorded network."""
        algorithm, cost = recorded_cost(op, ranks, size, self.recorded)
        seconds = self.fits[op].line.seconds(cost.rounds, cost.bytes) if ranks > 1 and op in self.fits else 0.0
        return Call(op=op, ranks=ranks, bytes=size, algorithm=algorithm, seconds=seconds)

    def call(self, op: str, ranks: int, size: float, grown: bool) -> Call:
        """Return the duration and the algorithm of a call: the fastest that its library has."""
        if self.target is None:
            return self.recorded_call(op, ranks, size)
        layout = costs.Layout(ranks, min(self.target.racks, ranks) if grown else 1)
        formulas = costs.list_choices(self.library, costs.pattern_of(get_operation(op)), layout)
        times = {name: self.target.seconds(formula(layout, size)) for name, formula in formulas.items()}
        algorithm = min(times, key=lambda name: times[name])
        return Call(op=op, ranks=ranks, bytes=size, algorithm=algorithm, seconds=times[algorithm])


def _grow(source: Source, ranks: int, network: _Network) -> tuple[World, list[Call]]:
    """Return the world with `ranks` ranks, and its calls."""
    program, growth, factor = source.program, source.growth, ranks / source.program.ranks
    transfers, turns = program.transfers, program.turns
    copies, weight = 1, 1.0
    if not growth.stages:
        copies = max(1, min(math.ceil(factor), PLAYERS // program.ranks))
        weight = factor / copies
        turns = {
            rank: [
                [one.times(growth.work(one.phase, factor)) if isinstance(one, Work) else one for one in actions]
                for actions in steps
            ]
            for rank, steps in program.turns.items()
        }
    elif ranks != program.ranks:
        turns, transfers = training.with_stages(program, *training.schedule_of(program), ranks)
    calls, parts, common = {}, {}, set()
    for key, one in transfers.items():
        grows = one.group in growth.groups and costs.pattern_of(get_operation(one.op)) is not costs.Pattern.MESSAGE
        if grows:
            common.add(key.lane)
        size = max(1, round(len(one.ranks) * factor)) if grows else len(one.ranks)
        calls[key] = network.call(one.op, size, growth.size(one, factor), grows)
        expected_s = network.recorded_call(one.op, len(one.ranks), one.size).seconds
        if expected_s > 0 and network.target is None:
            steps_s = program.took_s.get(key, ())
            parts[key] = [{rank: seconds / expected_s for rank, seconds in step.items()} for step in steps_s]
    world = World(
        turns=turns,
        transfers=transfers,
        seconds={key: call.seconds for key, call in calls.items()},
        parts=parts,
        spread={op: fit.spread for op, fit in network.fits.items()} if network.target is None else {},
        at_once=training.AT_ONCE.get(network.library, 1),
        carrying=source.carrying,
        copies=copies,
        common=frozenset(common),
        weight=weight,
    )
    return world, list(calls.values())


def _row(source: Source, ranks: int, network: _Network, machines: Sequence[Machine], off: float = 0.0) -> Row:
    """Replay one world: with expected, faster, and slower transfers, and with fewer and more other programs."""
    world, calls = _grow(source, ranks, network)
    world = replace(world, machine=machines[0] if machines else None)
    replayed = replay_world(world)
    step_s = replayed.step_s
    scaled = ({key: seconds * (1 + sign * network.error) for key, seconds in world.seconds.items()} for sign in (-1, 1))
    fast, slow = (replay_world(replace(world, seconds=seconds)).step_s for seconds in scaled)
    others = machines[1:] or (world.machine, world.machine)
    least, most = (replay_world(replace(world, machine=one)).step_s for one in others)
    moved, crowding = ((high - low) / 2 / step_s for low, high in ((fast, slow), (least, most)))
    steps_s = source.program.steps_s
    middle = median(steps_s)
    distances = sorted(abs(one - middle) / middle for one in steps_s)
    varied = distances[min(len(distances) - 1, math.ceil(0.68 * len(distances)) - 1)]  # two in three stay within it
    doublings = max(0.0, math.log2(ranks / source.program.ranks))
    wide = (1 + _WIDENING * doublings) * math.sqrt(moved**2 + crowding**2 + off**2 + varied**2)
    bounds = {"low_s": step_s * math.exp(-wide), "high_s": step_s * math.exp(wide)}
    measured_s = middle if ranks == source.program.ranks and network.target is None else None
    counted = tuple(replace(call, count=count) for call, count in Counter(calls).items())
    return Row(ranks=ranks, measured_s=measured_s, calls=counted, **bounds, **replayed._asdict())


_FEW = 0.1
"""Fewer other programs are not mentioned."""
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP = 760.0, 320.0, 92.0, 30.0, 50.0
_OWN, _HELD, _BAND = "#4474b0", "#d9822b", "#c9d6ea"


def projection_json(projection: Projection) -> dict[str, Any]:
    """Return the projection as plain data."""
    data = asdict(projection)
    data["runs"] = [{"run": run, "ranks": ranks} for run, ranks in projection.runs]
    data["fits"] = [
        {
            "op": op,
            "algorithm": fit.algorithm,
            "shared": fit.shared,
            "alpha_s": fit.line.alpha_s,
            "bandwidth": fit.bandwidth,
            "error": fit.line.error,
            "samples": [asdict(sample) for sample in fit.samples],
        }
        for op, fit in projection.fits.items()
    ]
    return data


def projection_text(projection: Projection, style: Style) -> str:
    """Render the step times, and the tables that they are based on."""
    worlds, calls, checks, fits = [], [], [], []
    for row in projection.rows:
        between = f"{format_duration(row.low_s)} to {format_duration(row.high_s)}"
        parts = map(format_duration, (row.own_s, row.exposed_s, row.waiting_s))
        moving = row.hidden_s + row.exposed_s
        hidden = _percent(row.hidden_s / moving if moving else None)
        worlds.append([f"{row.ranks:,}", format_duration(row.step_s), between, *parts, hidden])
        for number, call in enumerate(row.calls):
            named = "" if number else f"{row.ranks:,}", call.op, f"{call.ranks:,}", format_bytes(call.bytes)
            calls.append([*named, f"{call.count:,}", call.algorithm, format_duration(call.seconds)])
    for row in projection.checks:
        off = f"{100 * (row.step_s / row.known_s - 1):+.1f} %"
        checks.append([f"{row.ranks:,}", format_duration(row.known_s), format_duration(row.step_s), off])
    for op, fit in projection.fits.items():
        error = _percent(fit.line.error) + (" of all together" if fit.shared else "")
        count = sum(sample.count for sample in fit.samples)
        shown = [format_duration(fit.line.alpha_s), format_rate(fit.bandwidth), error]
        fits.append([op, fit.algorithm, *shown, str(len(fit.samples)), f"{count:,}"])
    notes = "exposed: blocked by communication; waiting: for other ranks; hidden: communication during own work"
    tables = (
        ("calls of a step", "ranks; operation; of ranks; bytes; in a step; algorithm; each takes", calls),
        ("the recorded worlds", "ranks; step, measured; replayed; off", checks),
        ("times of the recorded calls", "operation; algorithm; α; B; error; sizes; calls", fits),
    )
    steps = table_text(("ranks", "step", "between", "own work", "exposed", "waiting", "hidden"), worlds, style)
    sections = [_head(projection, style), f"{steps}\n{style.paint(notes, 'dim')}"]
    for name, head, rows in tables:
        sections.append(f"{style.paint(name, 'bold')}\n{table_text(head.split('; '), rows, style)}")
    sections.append("\n".join(style.paint(line, "dim") for line in _assumed(projection)))
    return "\n\n".join(sections)


def _head(projection: Projection, style: Style) -> str:
    run, ranks = projection.runs[-1]
    others = [f"{name} ({format_count(count, 'rank')})" for name, count in projection.runs[:-1]]
    with_others = f", with {join_words(others)}" if others else ""
    left = f"; {format_count(projection.left_out, 'other')} left out" if projection.left_out else ""
    steps = f"{format_count(projection.steps, 'equal training step')}{left}"
    machine = projection.machine
    shared = "" if machine is None else f", all ranks on {format_count(round(machine.cores), 'core')}"
    if machine is not None and machine.others >= _FEW:
        shared += f", with {machine.others:.1f} other programs on them"
    return (
        f"{style.paint(run, 'bold')} ({format_count(ranks, 'rank')}){with_others}: {steps}\n"
        f"network: {projection.network}{shared}; algorithms: {projection.library}"
    )


def _assumed(projection: Projection) -> list[str]:
    """Return the assumptions, a line each."""
    if projection.machine is not None:
        cores = "all ranks share the recorded cores, with the same other programs"
    elif projection.network != costs.MEASURED:
        cores = "each rank has separate cores; the recorded competition for cores is subtracted"
    else:
        cores = "ranks share cores as recorded, because the record does not show one machine for all ranks"
    return [
        *(f"Assumed: {sentence}." for sentence in (*projection.assumed, cores)),
        "`between` combines the errors of the model in the recorded worlds, the error of transfers "
        f"({_percent(projection.error)}), and the variation of steps. It widens with each doubling of ranks.",
    ]


def _percent(part: float | None) -> str:
    return NONE if part is None else f"{100 * part:.0f} %"


def projection_svg(projection: Projection) -> str:
    """Draw the step time by ranks: projected (line) with its interval (band), and measured (rings)."""
    shapes = Shapes()
    rows, measured = projection.rows, projection.checks
    ranks = [row.ranks for row in (*rows, *measured)]
    times = [*(one for row in rows for one in (row.low_s, row.high_s)), *(row.known_s for row in measured)]
    heading = f"time of a training step by ranks: {projection.runs[-1][0]}, {projection.network}"
    draw_text(shapes, _LEFT, 16, heading, size=13)
    draw_text(shapes, _LEFT, 34, "projected (line, with its interval) and measured (rings)", size=11)
    box = _LEFT, _TOP, _WIDTH - _RIGHT, _HEIGHT
    plot = Plot(shapes, box, ranks, times, ("{:,}".format, format_duration), at_each=True)
    band = [*((row.ranks, row.low_s) for row in rows), *((row.ranks, row.high_s) for row in reversed(rows))]
    plot.curve(band, "polygon", fill=_BAND, opacity=0.6)
    plot.curve(((row.ranks, row.step_s) for row in rows), fill="none", stroke=_OWN, stroke_width=1.5)
    for row in rows:
        step, own, exposed, waiting = map(format_duration, (row.step_s, row.own_s, row.exposed_s, row.waiting_s))
        words = f"{row.ranks:,} ranks: {step}, own work {own}, exposed {exposed}, waiting {waiting}"
        plot.dot(row.ranks, row.step_s, words, r=3.5, fill=_OWN)
        x, y = plot.position(row.ranks, row.step_s)
        draw_text(shapes, x, y - 9, step, size=11, text_anchor="middle")
    for row in measured:
        words = f"{row.ranks:,} ranks, measured: {format_duration(row.known_s)}"
        plot.dot(row.ranks, row.known_s, words, r=5, fill="none", stroke=_HELD, stroke_width=1.5)
    return render_sheet(shapes, _WIDTH, _HEIGHT + 30)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `lab project`."""
    about = "runs of the same training with different numbers of ranks (default: the latest)"
    shared.add_options(parser, "names", nargs="*", metavar="RUN", help=about, complete="runs")
    about = "numbers of ranks to predict for (default: 8,64,512,4096, as far as the run allows)"
    parser.add_argument("--ranks", type=parse_ranks, metavar="N,N", help=about)
    about = f"network to predict for (default: {costs.MEASURED})"
    parser.add_argument("--network", default=costs.MEASURED, metavar="NETWORK", help=about)
    about = "library that chooses among algorithms (default: the recorded one on its network, nccl on others)"
    parser.add_argument("--library", choices=costs.LIBRARIES, help=about)
    about = "other busy programs on the recorded machine (default: as many as recorded)"
    parser.add_argument("--others", type=parse_others, metavar="N", help=about)
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write a plot of the step times to a file instead")
    shared.add_options(parser, "--attempt", "--runs", "--json")


def run(arguments: argparse.Namespace) -> int:
    """Project it; needs no engine."""
    if (target := costs.parse_network(arguments.network)) is None and arguments.library is not None:
        raise UsageError("--library needs --network: the measured network keeps the recorded algorithms")
    if target is not None and arguments.others is not None:
        raise UsageError("--others needs the measured network: on other networks each rank has separate cores")
    records = [find_record(name, arguments.runs).attempt(arguments.attempt) for name in arguments.names or [None]]
    sources = [source_of(record.run, open_trace(record)) for record in records]
    projection = project_run(sources, arguments.ranks, target, arguments.library, arguments.others)
    if arguments.svg is not None:
        shared.write_text(arguments.svg, projection_svg(projection))
    written = f"wrote {arguments.svg}" if arguments.svg is not None else ""
    data = projection_json(projection)
    return shared.print_answer(arguments, data, lambda style: written or projection_text(projection, style))


@shared.convert_word
def parse_ranks(text: str) -> tuple[int, ...]:
    """Parse integers that are separated by commas."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 1 for word in words):
        raise ValueError(f"found {text!r}; allowed: numbers of ranks, 2 or more, such as 8,64,512")
    return tuple(map(int, words))


parse_others = shared.number_argument("a number of programs, such as 0 or 1.5", lambda number: 0 <= number <= 1e6)
