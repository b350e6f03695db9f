"""Whether ranks called what a scenario states, or what the snapshot beside it has."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lab import feature
from lab.diagnosis.evidence import Evidence, read_evidence
from lab.errors import LabError, RecordError, ScenarioError, UsageError
from lab.features.calls.changes import CallChange, Calls, tell_changes
from lab.features.calls.notation import Repeated, describe_call, fold, render_call
from lab.features.calls.pattern import ANYTHING, SNAPSHOT, CallPattern, Stated, calls_of, parse_calls
from lab.frozen import Frozen
from lab.plan.plan import Plan
from lab.record.layout import MOST_RANKS
from lab.record.read import Record
from lab.record.record_files import read_file, write_file
from lab.record.result import Expectation, Result
from lab.report.table import group_equal
from lab.spec.expressions import RankVariables
from lab.spec.load import library_folder
from lab.spec.reading import clip_repr
from lab.spec.scenario import Scenario
from lab.trace.model import Call, Group, RankTrace, Trace
from lab.trace.read import read_trace
from lab.words import format_count, rank_spans

MOST_CALLS = 1_000_000
"""Most calls that the lines of a rank may stand for."""
_LONGEST_ROUND = 1000
"""Most calls of which a repetition is noticed."""
_LONGEST_LINE = 1 << 16
_NOTHING = "nothing"
_OBJECT = "_object"
"""In the names of what sends objects."""
_INDENT = "  "
_SECTION = re.compile(r"ranks? (\d+(?:-\d+)?(?:, \d+(?:-\d+)?)*):")
_TIMES = re.compile(r"(\d{1,9}) times:")
_ALLOWED = "a call such as `all_reduce SUM float32[45]`, `20 times:`, or `ranks 0-2:` at the beginning of a line"


class SnapshotDamaged(LabError):
    """A file with calls cannot be read; the message begins with `file:line:`."""


def write_calls(calls: Calls, *heading: str) -> str:
    """The text of a file, with comments at its head."""
    lines = [f"# {line}" for line in heading]
    for ranks, texts in group_equal((rank, tuple(texts)) for rank, texts in sorted(calls.items())):
        lines += ["", f"rank{'s' * (len(ranks) > 1)} {', '.join(rank_spans(ranks))}:"]
        lines += _lines(fold(texts, _LONGEST_ROUND) or [_NOTHING], _INDENT)
    return "\n".join(lines).strip() + "\n"


def _lines(items: Iterable[str | Repeated], indent: str) -> Iterator[str]:
    for item in items:
        if isinstance(item, str):
            yield f"{indent}{item}"
        else:
            yield f"{indent}{item.times} times:"
            yield from _lines(item.items, indent + _INDENT)


@dataclass
class _Block:
    """Calls on lines that are indented further than the line before them."""

    indent: int
    """That of the line before them."""
    times: int = 1
    calls: list[str] = field(default_factory=list)


def read_calls(text: str, name: str) -> dict[int, tuple[str, ...]]:
    """What a file says.

    Raises:
        SnapshotDamaged: it says nothing, or something that is no call.
    """
    found: dict[int, tuple[str, ...]] = {}
    known: dict[str, tuple[str, ...]] = {_NOTHING: ()}
    blocks: list[_Block] = []
    ranks: list[int] = []
    number = 0

    def damaged(what: str, allowed: str = _ALLOWED) -> SnapshotDamaged:
        return SnapshotDamaged(f"{name}:{number}: {what}; allowed: {allowed}")

    def end_blocks(indent: int) -> None:
        """End those that a line with this indentation is not in."""
        while blocks and blocks[-1].indent >= indent:
            block = blocks.pop()
            calls = blocks[-1].calls if blocks else []
            if len(calls) + len(block.calls) * block.times > MOST_CALLS:
                raise damaged(f"found more than {MOST_CALLS} calls", f"up to {MOST_CALLS} of a rank")
            calls += block.calls * block.times
            if not blocks:
                found.update(dict.fromkeys(ranks, tuple(calls)))

    for number, line in enumerate(text.expandtabs(len(_INDENT)).splitlines(), 1):
        words, indent = " ".join(line.split()), len(line) - len(line.lstrip())
        if not words or words.startswith("#"):
            continue
        end_blocks(indent)
        if not blocks:
            section = _SECTION.fullmatch(words)
            if section is None or indent:
                raise damaged(f"found {clip_repr(words)}")
            ranks = []
            for span in section[1].split(", "):
                first, _, last = span.partition("-")
                if max(len(first), len(last)) > 8 or not int(first) <= int(last or first) < MOST_RANKS:
                    raise damaged(f"found ranks {span}", f"ranks from 0 to {MOST_RANKS - 1}, such as 0-2")
                for rank in range(int(first), int(last or first) + 1):
                    if rank in found:
                        raise damaged(f"found rank {rank} again", "each rank once")
                    found[rank] = ()
                    ranks.append(rank)
            blocks.append(_Block(0))
        elif repeated := _TIMES.fullmatch(words):
            blocks.append(_Block(indent, int(repeated[1])))
        else:
            if words not in known:
                try:
                    patterns = () if "{" in words else parse_calls(words, longest=_LONGEST_LINE)
                except ScenarioError as error:
                    raise SnapshotDamaged(f"{name}:{number}: {error.message}") from None
                if not patterns or ANYTHING in patterns:
                    raise damaged(f"found {clip_repr(words)}")
                known[words] = tuple(pattern.text for pattern in patterns)
            blocks[-1].calls += known[words]
    end_blocks(0)
    if not found:
        raise damaged("there is no call")
    return dict(sorted(found.items()))


def counted(calls: Calls) -> str:
    """`24 calls of 3 ranks`."""
    return f"{format_count(sum(map(len, calls.values())), 'call')} of {format_count(len(calls), 'rank')}"


def texts_of(trace: Trace) -> Mapping[int, tuple[str, ...]]:
    """All that was called, by rank, as far as it is the same in every run of the same program."""
    found = {}
    for rank, calls in settled_calls(trace).items():
        pickled, phase = _pickled(trace.ranks[rank].calls), not trace.ranks[rank].threads
        found[rank] = tuple(
            render_call(call, trace.groups, phase=phase, whole=True, sizes=call.index not in pickled) for call in calls
        )
    return found


def settled_calls(trace: Trace) -> dict[int, list[Call]]:
    """The calls of each rank in the order of the program.

    Where several threads of a rank make calls, that is an order only within a group, and between the same two ranks:
    so the calls of one group stand together there, its messages by what they are.
    """

    def place(call: Call) -> tuple[object, ...]:
        group, is_message = trace.groups.get(call.group), call.seq is None
        peer = -1 if call.peer is None or call.from_any else call.peer
        return group.title if group else call.group, is_message, (call.op, peer, call.tag) if is_message else ()

    return {rank: sorted(of.calls, key=place) if of.threads else of.calls for rank, of in sorted(trace.ranks.items())}


def changes_of(trace: Trace, before: Calls, than: str, ended: Mapping[int, bool] | None = None) -> list[CallChange]:
    """What the ranks of a trace call otherwise; see `tell_changes`."""
    calls = settled_calls(trace)
    return tell_changes(before, texts_of(trace), lambda rank, i: calls[rank][i].source, than=than, ended=ended or {})


def _pickled(calls: Iterable[Call]) -> set[int]:
    """The calls that send pickled objects, whose lengths are those of their values: paths, times, names.

    PyTorch tells the length before the bytes, and not by the function that the script would call to send bytes.
    """
    found = set()
    last: dict[str, Call] = {}
    for call in calls:
        before = last.get(call.group)
        if call.own and all(tensor.dtype == "uint8" and len(tensor.shape) == 1 for tensor in call.own):
            has_length = (
                before is not None
                and (before.source, before.via) == (call.source, call.via)
                and [(tensor.dtype, len(tensor.shape)) for tensor in before.own] == [("int64", 1)]
            )
            is_own = call.via.rpartition(".")[2] != call.op and call.phase != "backward"
            if _OBJECT in call.via or (has_length and is_own):
                found.add(call.index)
        last[call.group] = call
    return found


NOT_RECORDED = "calls were not recorded: tracing was off; run it without --no-trace and trace: false"


def check_calls(
    stated: Sequence[str] | Mapping[int, Sequence[str]], record: Record, variables: Mapping[int, RankVariables]
) -> Iterator[Expectation]:
    """One expectation for each rank of which calls are stated: as stated, or the first place where they differ."""
    trace = read_trace(record)
    by_rank = stated if isinstance(stated, Mapping) else dict.fromkeys(variables, stated)
    for rank, items in sorted(by_rank.items()):
        of_rank = trace.ranks.get(rank)
        try:
            if of_rank is None or not of_rank.recorded:
                raise ScenarioError("no trace of this rank is on record" if trace.recorded else NOT_RECORDED)
            if of_rank.cut:
                raise ScenarioError(f"recording ended early: {of_rank.cut}")
            patterns = [pattern for item in items for pattern in parse_calls(item, variables[rank])]
        except ScenarioError as error:  # the run is over: what cannot be compared is not met, and says why
            yield Expectation(what="calls", rank=rank, expected="; ".join(items), got=f"({error.message})", met=False)
            continue
        yield _compare(patterns, of_rank, trace.groups)


def _compare(patterns: list[CallPattern], rank: RankTrace, groups: Mapping[str, Group]) -> Expectation:
    departure = first_departure(patterns, rank.calls, groups)

    def text_of(call: Call, phase: bool = False) -> str:
        where = f" at {call.source}" if call.source else ""
        return f"call {call.index}: {render_call(call, groups, phase=phase)}{where}"

    expected, got = "as stated", f"as stated: {format_count(len(rank.calls), 'call')}"
    if departure is not None:
        due = departure.expected
        expected = "no further call" if due is None else due.text
        if departure.got is not None:
            got = text_of(departure.got, due is not None and due.phase is not None)
        else:
            more = "nothing like it" if departure.after_gap else "nothing more"
            got = f"{more}, after {text_of(rank.calls[-1])}" if rank.calls else "no call at all"
    return Expectation(what="calls", rank=rank.rank, expected=expected, got=got, met=departure is None)


_COMPARED = {one.name for one in fields(CallPattern)} - {"text", "tensors", "group"}
"""What is stated as it is recorded, if it is stated."""


def fits(call: Call, pattern: CallPattern, groups: Mapping[str, Group]) -> bool:
    """Whether a recorded call is what a scenario states; what is not stated is not compared."""
    group, made = groups.get(call.group), describe_call(call, groups)
    labels = (call.group,) if group is None else (call.group, group.label, group.plain_label)
    tensors = pattern.tensors if pattern.tensors is not None else [(one.dtype, None) for one in call.own]
    return (
        pattern.group in (None, *labels)
        and all(getattr(pattern, name) in (None, getattr(made, name)) for name in _COMPARED)
        and len(call.own) == len(tensors)
        and all(one.dtype == of[0] and of[1] in (None, one.shape) for one, of in zip(call.own, tensors, strict=True))
    )


class Departure(NamedTuple):
    """Where a rank left what was stated."""

    expected: CallPattern | None
    """The call that was due; None where there were no more."""
    got: Call | None
    """What came instead; None where the rank called nothing more."""
    after_gap: bool = False
    """Whether `...` stood before `expected`: it was waited for until the end, and `got` is None."""


def first_departure(
    stated: Sequence[CallPattern], calls: Sequence[Call], groups: Mapping[str, Group]
) -> Departure | None:
    """Where calls differ from what was stated; None if they do not.

    Where `...` leaves several ways to read the calls, the one that gets furthest counts.
    """
    places = _open(stated, {0})
    furthest, at = max(places), 0
    for number, call in enumerate(calls):
        here = [(place, stated[place]) for place in places if place < len(stated)]
        stays = {place for place, pattern in here if pattern is ANYTHING}
        goes_on = {place + 1 for place, pattern in here if pattern is not ANYTHING and fits(call, pattern, groups)}
        places = _open(stated, stays | goes_on)
        if not places:
            break
        if max(places) > furthest:
            furthest, at = max(places), number + 1
    if len(stated) in places:
        return None
    expected = stated[furthest] if furthest < len(stated) else None
    if furthest > 0 and stated[furthest - 1] is ANYTHING:
        return Departure(expected, None, after_gap=True)
    return Departure(expected, calls[at] if at < len(calls) else None)


def _open(stated: Sequence[CallPattern], places: set[int]) -> set[int]:
    """The places with those behind each `...`, which may stand for nothing."""
    found = set(places)
    for place in sorted(places):
        while place < len(stated) and stated[place] is ANYTHING:
            place += 1
            found.add(place)
    return found


SUFFIX = ".calls.txt"
_MOST_BYTES = 16 << 20
_MOST_TOLD = 50


class SnapshotHome(Frozen):
    """Where the snapshots of results lie while a test runs."""

    file: Path
    """The file of the test; they lie beside it."""
    name: str
    """That of the test; each run of it that is compared has a file."""
    how: str
    """What writes them anew: a command."""
    update: bool | None = None
    """As in `RecordedCalls.matches_snapshot`, where that does not say."""
    runs: list[str] = field(default_factory=list)
    """The runs that were compared so far."""


class SnapshotFile(Frozen):
    """A snapshot, which may not be there yet; it is not reached by a link."""

    path: Path
    of: str
    """Whose calls it has, for a person: `ring.yaml on 3 nodes x 1`."""
    how: str
    """What writes it anew: a command, or a call of the API."""

    @property
    def name(self) -> str:
        """Its name in its folder."""
        return self.path.name

    def read(self) -> Calls | None:
        """What it says; None where there is no such file.

        Raises:
            LabError: it cannot be read, or is damaged.
        """
        try:
            text = read_file(self.path.parent, self.name, _MOST_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return None
        except (OSError, RecordError) as error:
            why = getattr(error, "strerror", None) or f"it has over {_MOST_BYTES >> 20} MiB"
            why = "it is a link" if self.path.is_symlink() else why if os.path.isfile(self.path) else "it is no file"
            raise LabError(f"{self.name} cannot be read: {why}") from error
        return read_calls(text, self.name)

    def write(self, calls: Calls) -> None:
        """Write it, whole or not at all; what was there is replaced, not followed.

        Raises:
            LabError: it cannot be written.
        """
        library = library_folder().resolve()
        is_installed = library.parent == Path(feature.__file__).resolve().parent  # else it is that of a checkout
        if is_installed and self.path.resolve().is_relative_to(library):
            whose = f"{self.name} is not written among the lessons of the installed lab"
            raise LabError(f"{whose}; `lab new --from` copies a lesson into a folder of yours")
        text = write_calls(calls, f"What the ranks of {self.of} call, in order.", f"{self.how} writes it anew.")
        try:
            if read_calls(text, self.name) != dict(calls):
                raise SnapshotDamaged("it could not be read again")
        except SnapshotDamaged as error:
            raise LabError(f"{self.name} is not written: what was called has no plain text ({error.message})") from None
        try:
            write_file(self.path.parent, self.name, text.encode(), make_folders=False)
        except OSError as error:
            raise LabError(f"{self.path} cannot be written: {error.strerror}") from error


def beside(file: Path, nnodes: int, nproc_per_node: int, how: str = "") -> SnapshotFile:
    """The snapshot of a scenario, or of a plain script, at one size."""
    path = file.with_name(f"{file.stem}.{nnodes}x{nproc_per_node}{SUFFIX}")
    of = f"{file.name} on {format_count(nnodes, 'node')} x {nproc_per_node}"
    return SnapshotFile(path=path, of=of, how=how or f"`lab run {file.name} --update`")


def with_stated_calls(scenario: Scenario, nnodes: int, nproc_per_node: int) -> Scenario:
    """The scenario with the calls of its snapshot as what it expects: so nothing is written, whoever's script it runs.

    Raises:
        UsageError: it has no snapshot of that size.
        LabError: that cannot be read.
    """
    if calls_of(scenario.expect) != SNAPSHOT:
        return scenario
    file = beside(scenario.source or scenario.script, nnodes, nproc_per_node)
    calls = file.read()
    if calls is None:
        what = f"{scenario.name} expects the calls of {file.name}, which is not there"
        raise UsageError(what, f"{file.how} writes it")
    stated = {**scenario.expect.extra, "calls": {rank: tuple(of) for rank, of in calls.items()}}
    return replace(scenario, expect=replace(scenario.expect, extra=stated))


def judge_calls(
    stated: Stated, plan: Plan, evidence: Evidence, variables: Mapping[int, RankVariables], update: bool | None
) -> Iterable[Expectation] | Callable[[bool], Sequence[Expectation]]:
    """Whether ranks called what a scenario states; of a snapshot that depends on whether all else is as expected."""
    if not isinstance(stated, str):
        return check_calls(stated, evidence.record, variables)
    file = beside(plan.scenario.source or plan.scenario.script, plan.nnodes, plan.nproc_per_node)
    return lambda fine: hold_against(file, evidence, update=update, fine=fine)


def hold_against(file: SnapshotFile, evidence: Evidence, *, update: bool | None, fine: bool) -> list[Expectation]:
    """Whether a run called what its snapshot has, which is written where that is due.

    Args:
        file: the snapshot.
        evidence: the run.
        update: True: write it anew; False: never; None: write one that is missing, except in CI.
        fine: whether the run is as expected in everything else; of another no snapshot is made.
    """

    def outcome(got: str, *, met: bool = False) -> list[Expectation]:
        return [Expectation(what="snapshot", expected=file.name, got=got, met=met)]

    def write(how: str) -> list[Expectation]:
        file.write(now)
        return outcome(f"written{how}", met=True)

    trace = evidence.trace
    cut = next((rank for rank in trace.ranks.values() if rank.cut), None)
    if not trace.recorded or cut is not None:
        why = f"recording of rank {cut.rank} ended early: {cut.cut}" if cut and trace.recorded else NOT_RECORDED
        return outcome(f"({why})")
    now = texts_of(trace)
    try:
        before = file.read()
        if before is not None:
            found = _check(file.name, before, evidence, whole=fine)
            if update and fine and not all(one.met for one in found):
                return write(f" anew: {found[0].got}" + (f" (and {len(found) - 1} more)" if len(found) > 1 else ""))
            return found
        if update is False or (update is None and in_ci()):
            why = "" if update is False else "; where CI is set, it is not written by itself"
            return outcome(f"(there is no such file: {file.how} writes it{why})")
        if not fine:
            return outcome("(there is no such file, and none is made of a run that is not as expected)")
        return write(f": {counted(now)}")
    except LabError as error:
        if isinstance(error, SnapshotDamaged) and update and fine:
            return write(f" anew: {counted(now)}")
        return outcome(f"({error.message})")


def in_ci() -> bool:
    """Whether this is a CI job, as every CI service says."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def _check(name: str, before: Calls, evidence: Evidence, *, whole: bool) -> list[Expectation]:
    """Whether the ranks called what a snapshot has: one expectation for all that they did otherwise in the same way.

    Of a run that is not `whole`, nothing is missing after the last call of a rank that did not come to its end.
    """
    ended = {rank: whole or facts.left for rank, facts in evidence.ranks.items()}
    changes = changes_of(evidence.trace, before, "the snapshot", ended)
    differences = [(one.ranks[0] if len(one.ranks) == 1 else None, one.text) for one in changes[:_MOST_TOLD]]
    if len(changes) > _MOST_TOLD:
        differences.append((None, f"and {len(changes) - _MOST_TOLD} more differences"))
    if differences:
        return [Expectation(what="snapshot", rank=rank, expected=name, got=got, met=False) for rank, got in differences]
    left = all(ended.get(rank, whole) for rank in before)
    got = "the same" if left else "the same, as far as the ranks came"
    return [Expectation(what="snapshot", expected=name, got=f"{got}: {counted(texts_of(evidence.trace))}", met=left)]


class RecordedCalls(dict[int, tuple[str, ...]]):
    """What the ranks of a run called: by rank, a line a call, in order. Shows itself as the text of a snapshot.

    Args:
        result: the run, whose record is read.

    Raises:
        LabError: the run has no record.
    """

    home: SnapshotHome | None = None
    """That of all results, while a test runs."""

    def __init__(self, result: Result) -> None:
        if result.path is None:
            raise RecordError("the run has no record, so nobody knows what its ranks called")
        self._result, self._evidence = result, read_evidence(Record(path=result.path))
        super().__init__(texts_of(self._evidence.trace))

    def __repr__(self) -> str:
        return write_calls(self).rstrip()

    def matches_snapshot(self, path: str | Path | None = None, *, update: bool | None = None) -> bool:
        """Hold them against a file; one that is missing is written, except in CI.

        Args:
            path: the file; None: next to the script of the run or, in a test, beside the test.
            update: True: write it anew; False: not even one that is missing.

        Returns:
            True.

        Raises:
            AssertionError: something was called otherwise; the message says what, in words.
        """
        __tracebackhide__ = True  # the message says it all
        home = type(self).home
        if update is None and home is not None:
            update = home.update
        file = self._file(path)
        found = hold_against(file, self._evidence, update=update, fine=self._result.passed)
        unmet = [one.sentence() for one in found if not one.met]
        if unmet:
            ended = [] if self._result.passed else [f"the run itself: {self._result.reason}"]
            raise AssertionError("\n".join([*unmet, *ended, f"({file.how} writes it anew)"]))
        return True

    def _file(self, path: str | Path | None) -> SnapshotFile:

        home, plan = type(self).home, self._evidence.record.plan()
        how = "`matches_snapshot(update=True)`" if home is None else home.how
        folder = Path() if home is None else home.file.parent
        size = plan.nnodes or 1, plan.nproc_per_node or 1
        if path is not None:
            place = Path(os.path.abspath(folder / path))
            return SnapshotFile(path=place, of=f"{plan.scenario} on {size[0]} x {size[1]}", how=how)
        if home is None:
            return beside(Path(plan.script), *size, how=how)
        run = self._evidence.record.run
        if run not in home.runs:
            home.runs.append(run)
        turn = home.runs.index(run) + 1
        name = home.name if turn == 1 else f"{home.name}-{turn}"
        return beside(home.file.with_name(f"{home.file.stem}.{name}.py"), *size, how=how)


def keep_beside_test(file: Path, name: str, how: str, update: bool | None) -> Callable[[], None]:
    """Have `matches_snapshot()` keep its files beside the file of a test; returns what ends that."""
    RecordedCalls.home = SnapshotHome(file=file, name=name, how=how, update=update)
    return partial(setattr, RecordedCalls, "home", None)
