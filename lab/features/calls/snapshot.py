"""Check whether ranks called what a scenario states, or what its snapshot contains."""

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
from lab.features.calls.changes import CallChange, Calls, describe_changes
from lab.features.calls.notation import Repeated, describe_call, fold_repeats, render_call
from lab.features.calls.pattern import ANYTHING, SNAPSHOT, CallPattern, Stated, calls_of, parse_calls
from lab.frozen import Frozen
from lab.record.layout import MOST_RANKS
from lab.record.read import Record
from lab.record.record_files import read_file, write_file
from lab.record.result import Expectation, Result
from lab.report.style import group_equal
from lab.run.options import Job
from lab.spec.expressions import RankVariables
from lab.spec.load import library_folder
from lab.spec.reading import clip_repr
from lab.spec.scenario import Scenario
from lab.trace.model import Call, Group, RankTrace, Trace
from lab.trace.read import read_trace
from lab.words import format_count, rank_spans

MOST_CALLS = 1_000_000
"""Most calls that the lines of a rank may expand to."""
_LONGEST_ROUND = 1000
"""Longest period of calls that is folded."""
_LONGEST_LINE = 1 << 16
_NOTHING = "nothing"
_OBJECT = "_object"
"""Part of the names of functions that send objects."""
_INDENT = "  "
_SECTION = re.compile(r"ranks? (\d+(?:-\d+)?(?:, \d+(?:-\d+)?)*):")
_TIMES = re.compile(r"(\d{1,9}) times:")
_ALLOWED = "a call such as `all_reduce SUM float32[45]`, `20 times:`, or `ranks 0-2:` at the beginning of a line"


class SnapshotDamaged(LabError):
    """A file with calls cannot be read; the message begins with `file:line:`."""


def write_calls(calls: Calls, *heading: str) -> str:
    """Return the text of a snapshot file, with comments at its head."""
    lines = [f"# {line}" for line in heading]
    for ranks, texts in group_equal((rank, tuple(texts)) for rank, texts in sorted(calls.items())):
        lines += ["", f"rank{'s' * (len(ranks) > 1)} {', '.join(rank_spans(ranks))}:"]
        lines += _lines(fold_repeats(texts, _LONGEST_ROUND) or [_NOTHING], _INDENT)
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
    """Indentation of the line before them."""
    times: int = 1
    calls: list[str] = field(default_factory=list)


def read_calls(text: str, name: str) -> dict[int, tuple[str, ...]]:
    """Parse a snapshot file.

    Raises:
        SnapshotDamaged: It has no calls, or an invalid line.
    """
    calls_of_rank: dict[int, tuple[str, ...]] = {}
    known: dict[str, tuple[str, ...]] = {_NOTHING: ()}
    blocks: list[_Block] = []
    ranks: list[int] = []
    number = 0

    def damaged(what: str, allowed: str = _ALLOWED) -> SnapshotDamaged:
        return SnapshotDamaged(f"{name}:{number}: {what}; allowed: {allowed}")

    def end_blocks(indent: int) -> None:
        """End the blocks that a line with this indentation is not part of."""
        while blocks and blocks[-1].indent >= indent:
            block = blocks.pop()
            calls = blocks[-1].calls if blocks else []
            if len(calls) + len(block.calls) * block.times > MOST_CALLS:
                raise damaged(f"found more than {MOST_CALLS} calls", f"up to {MOST_CALLS} of a rank")
            calls += block.calls * block.times
            if not blocks:
                calls_of_rank.update(dict.fromkeys(ranks, tuple(calls)))

    for number, line in enumerate(text.expandtabs(len(_INDENT)).splitlines(), 1):
        words, indent = " ".join(line.split()), len(line) - len(line.lstrip())
        if not words or words.startswith("#"):
            continue
        end_blocks(indent)
        if not blocks:
            if (section := _SECTION.fullmatch(words)) is None or indent:
                raise damaged(f"found {clip_repr(words)}")
            ranks = []
            for span in section[1].split(", "):
                first, _, last = span.partition("-")
                if max(len(first), len(last)) > 8 or not int(first) <= int(last or first) < MOST_RANKS:
                    raise damaged(f"found ranks {span}", f"ranks from 0 to {MOST_RANKS - 1}, such as 0-2")
                for rank in range(int(first), int(last or first) + 1):
                    if rank in calls_of_rank:
                        raise damaged(f"found rank {rank} again", "each rank once")
                    calls_of_rank[rank] = ()
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
    if not calls_of_rank:
        raise damaged("it has no calls")
    return dict(sorted(calls_of_rank.items()))


def count_calls(calls: Calls) -> str:
    """Return `24 calls of 3 ranks`."""
    return f"{format_count(sum(map(len, calls.values())), 'call')} of {format_count(len(calls), 'rank')}"


def texts_of(trace: Trace) -> Mapping[int, tuple[str, ...]]:
    """Return all calls by rank, reduced to what is the same in every run of the program."""
    texts = {}
    for rank, calls in settled_calls(trace).items():
        pickled, phase = _pickled(trace.ranks[rank].calls), not trace.ranks[rank].threads
        texts[rank] = tuple(
            render_call(call, trace.groups, phase=phase, whole=True, sizes=call.index not in pickled) for call in calls
        )
    return texts


def settled_calls(trace: Trace) -> dict[int, list[Call]]:
    """Return the calls of each rank in program order.

    If several threads of a rank make calls, only the order within a group and between the same two ranks is fixed. So
    the calls of one group are grouped, and its messages by operation, peer, and tag.
    """

    def sort_key(call: Call) -> tuple[object, ...]:
        group, is_message = trace.groups.get(call.group), call.seq is None
        peer = -1 if call.peer is None or call.from_any else call.peer
        return group.title if group else call.group, is_message, (call.op, peer, call.tag) if is_message else ()

    return {
        rank: sorted(of.calls, key=sort_key) if of.threads else of.calls for rank, of in sorted(trace.ranks.items())
    }


def changes_of(trace: Trace, before: Calls, than: str, ended: Mapping[int, bool] | None = None) -> list[CallChange]:
    """Return how the calls in a trace differ from earlier ones; see `describe_changes`."""
    calls = settled_calls(trace)
    return describe_changes(
        before, texts_of(trace), lambda rank, i: calls[rank][i].source, than=than, ended=ended or {}
    )


def _pickled(calls: Iterable[Call]) -> set[int]:
    """Return calls that send pickled objects, whose lengths depend on values such as paths, times, and names.

    PyTorch sends the length before the bytes, and through another function than a script that sends bytes.
    """
    pickled = set()
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
                pickled.add(call.index)
        last[call.group] = call
    return pickled


NOT_RECORDED = "calls were not recorded because tracing was off; run it without --no-trace and `trace: false`"


def check_calls(
    stated: Sequence[str] | Mapping[int, Sequence[str]], record: Record, variables: Mapping[int, RankVariables]
) -> Iterator[Expectation]:
    """Yield an expectation for each rank with stated calls: as stated, or the first difference."""
    trace = read_trace(record)
    by_rank = stated if isinstance(stated, Mapping) else dict.fromkeys(variables, stated)
    for rank, items in sorted(by_rank.items()):
        of_rank = trace.ranks.get(rank)
        try:
            if of_rank is None or not of_rank.recorded:
                raise ScenarioError("the record has no trace of this rank" if trace.recorded else NOT_RECORDED)
            if of_rank.cut:
                raise ScenarioError(f"recording ended early: {of_rank.cut}")
            patterns = [pattern for item in items for pattern in parse_calls(item, variables[rank])]
        except ScenarioError as error:  # the run is over, so report the problem as an unmet expectation
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
        expected = "(no call)" if due is None else due.text
        if departure.got is not None:
            got = text_of(departure.got, due is not None and due.phase is not None)
        else:
            nothing = "(no such call)" if departure.after_gap else "(no call)"
            got = f"{nothing} after {text_of(rank.calls[-1])}" if rank.calls else "(no call)"
    return Expectation(what="calls", rank=rank.rank, expected=expected, got=got, met=departure is None)


_COMPARED = {one.name for one in fields(CallPattern)} - {"text", "tensors", "group"}
"""Fields that must equal the recorded ones if they are stated."""


def matches_pattern(call: Call, pattern: CallPattern, groups: Mapping[str, Group]) -> bool:
    """Return whether a recorded call matches a stated one; only stated fields count."""
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
    """The first difference between a rank's calls and the stated ones."""

    expected: CallPattern | None
    """The stated call; None if there were no more."""
    got: Call | None
    """The recorded call; None if the rank called nothing more."""
    after_gap: bool = False
    """Whether `...` preceded `expected`. The lab then looked for it until the end, and `got` is None."""


def first_departure(
    stated: Sequence[CallPattern], calls: Sequence[Call], groups: Mapping[str, Group]
) -> Departure | None:
    """Return where calls differ from the stated ones; None if they do not.

    If `...` allows several ways to read the calls, the one that gets furthest counts.
    """
    positions = _open(stated, {0})
    furthest, at = max(positions), 0
    for number, call in enumerate(calls):
        here = [(position, stated[position]) for position in positions if position < len(stated)]
        stays = {position for position, pattern in here if pattern is ANYTHING}
        matches = [(at, pattern is not ANYTHING and matches_pattern(call, pattern, groups)) for at, pattern in here]
        if not (positions := _open(stated, stays | {at + 1 for at, is_match in matches if is_match})):
            break
        if max(positions) > furthest:
            furthest, at = max(positions), number + 1
    if len(stated) in positions:
        return None
    expected = stated[furthest] if furthest < len(stated) else None
    if furthest > 0 and stated[furthest - 1] is ANYTHING:
        return Departure(expected, None, after_gap=True)
    return Departure(expected, calls[at] if at < len(calls) else None)


def _open(stated: Sequence[CallPattern], positions: set[int]) -> set[int]:
    """Add the positions after each `...`, which may stand for nothing."""
    reachable = set(positions)
    for position in sorted(positions):
        while position < len(stated) and stated[position] is ANYTHING:
            position += 1
            reachable.add(position)
    return reachable


SUFFIX = ".calls.txt"
_MOST_BYTES = 16 << 20
_MOST_TOLD = 50


class SnapshotHome(Frozen):
    """Where snapshots of results are stored while a test runs."""

    file: Path
    """File of the test; snapshots are next to it."""
    name: str
    """Name of the test; each run that it compares has its own file."""
    how: str
    """The command that rewrites them."""
    update: bool | None = None
    """Default for `update` of `RecordedCalls.matches_snapshot`."""
    runs: list[str] = field(default_factory=list)
    """Runs that were compared so far."""


class SnapshotFile(Frozen):
    """A snapshot file, which may not exist yet; links are not followed."""

    path: Path
    of: str
    """Whose calls it has, for people: `ring.yaml on 3 nodes x 1`."""
    how: str
    """What rewrites it: a command, or a call of the API."""

    @property
    def name(self) -> str:
        """Name in its folder."""
        return self.path.name

    def read(self) -> Calls | None:
        """Read the calls; return None if the file does not exist.

        Raises:
            LabError: It is damaged, or the process cannot read it.
        """
        try:
            text = read_file(self.path.parent, self.name, _MOST_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return None
        except (OSError, RecordError) as error:
            why = getattr(error, "strerror", None) or f"it has more than {_MOST_BYTES >> 20} MiB"
            why = "it is a link" if self.path.is_symlink() else why if os.path.isfile(self.path) else "it is not a file"
            raise LabError(f"cannot read {self.name}: {why}") from error
        return read_calls(text, self.name)

    def write(self, calls: Calls) -> None:
        """Write the file atomically; it replaces an existing one, and follows no links.

        Raises:
            LabError: It cannot be written.
        """
        library = library_folder().resolve()
        is_installed = library.parent == Path(feature.__file__).resolve().parent  # otherwise it is a checkout
        if is_installed and self.path.resolve().is_relative_to(library):
            whose = f"cannot write {self.name} into the lessons of the installed lab"
            raise LabError(whose, "copy the lesson into your own folder: `lab new --from LESSON`")
        text = write_calls(calls, f"What the ranks of {self.of} call, in order.", f"{self.how} rewrites it.")
        try:
            if read_calls(text, self.name) != dict(calls):
                raise SnapshotDamaged("its text has other calls")
        except SnapshotDamaged as error:
            raise LabError(f"cannot write {self.name}: its calls cannot be written as text ({error.message})") from None
        with LabError.on_os_error(f"cannot write {self.path}"):
            write_file(self.path.parent, self.name, text.encode(), make_folders=False)


def locate_snapshot(file: Path, nnodes: int, nproc_per_node: int, how: str = "") -> SnapshotFile:
    """Return the snapshot of a scenario, or of a plain script, for one cluster size."""
    path = file.with_name(f"{file.stem}.{nnodes}x{nproc_per_node}{SUFFIX}")
    of = f"{file.name} on {format_count(nnodes, 'node')} x {nproc_per_node}"
    return SnapshotFile(path=path, of=of, how=how or f"`lab run {file.name} --update`")


def with_stated_calls(scenario: Scenario, nnodes: int, nproc_per_node: int) -> Scenario:
    """Return the scenario with the calls of its snapshot as expected calls, so that the run writes nothing.

    Raises:
        UsageError: There is no snapshot for that size.
        LabError: The snapshot cannot be read.
    """
    if calls_of(scenario.expect) != SNAPSHOT:
        return scenario
    file = locate_snapshot(scenario.source or scenario.script, nnodes, nproc_per_node)
    if (calls := file.read()) is None:
        what = f"{scenario.name} expects the calls of {file.name}, but that file does not exist"
        raise UsageError(what, f"{file.how} writes it")
    stated = {**scenario.expect.extra, "calls": {rank: tuple(of) for rank, of in calls.items()}}
    return replace(scenario, expect=replace(scenario.expect, extra=stated))


def judge_calls(
    stated: Stated, job: Job, evidence: Evidence, variables: Mapping[int, RankVariables]
) -> Iterable[Expectation] | Callable[[bool], Sequence[Expectation]]:
    """Return whether ranks called what a scenario states; for a snapshot, a function that needs the other results."""
    if not isinstance(stated, str):
        return check_calls(stated, evidence.record, variables)
    plan = job.plan
    file = locate_snapshot(plan.scenario.source or plan.scenario.script, plan.nnodes, plan.nproc_per_node)
    return lambda fine: compare_snapshot(file, evidence, update=job.options.update, fine=fine)


def compare_snapshot(file: SnapshotFile, evidence: Evidence, *, update: bool | None, fine: bool) -> list[Expectation]:
    """Compare a run with its snapshot, and write the snapshot if necessary.

    Args:
        file: The snapshot.
        evidence: The run.
        update: True: rewrite it; False: never write; None: write a missing one, except in CI.
        fine: Whether everything else in the run is as expected; otherwise no snapshot is written.
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
        if (before := file.read()) is not None:
            expectations = _check(file.name, before, evidence, whole=fine)
            if update and fine and not all(one.met for one in expectations):
                others = f" (and {len(expectations) - 1} more)" if len(expectations) > 1 else ""
                return write(f" again: {expectations[0].got}{others}")
            return expectations
        if update is False or (update is None and in_ci()):
            why = "" if update is False else "; if CI is set, a run does not write it"
            return outcome(f"(there is no such file: {file.how} writes it{why})")
        if not fine:
            return outcome("(there is no such file; the lab writes it only from a run that is as expected)")
        return write(f": {count_calls(now)}")
    except LabError as error:
        if isinstance(error, SnapshotDamaged) and update and fine:
            return write(f" again: {count_calls(now)}")
        return outcome(f"({error.message})")


def in_ci() -> bool:
    """Return whether this is a CI job, by the variable that CI services set."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def _check(name: str, before: Calls, evidence: Evidence, *, whole: bool) -> list[Expectation]:
    """Compare the calls of ranks with a snapshot: one expectation for each difference that ranks share.

    In a run that is not `whole`, nothing is missing after the last call of a rank that did not reach its end.
    """
    ended = {rank: whole or facts.left for rank, facts in evidence.ranks.items()}
    changes = changes_of(evidence.trace, before, "the snapshot", ended)
    differences = [(one.ranks[0] if len(one.ranks) == 1 else None, one.text) for one in changes[:_MOST_TOLD]]
    if len(changes) > _MOST_TOLD:
        differences.append((None, f"and {len(changes) - _MOST_TOLD} more differences"))
    if differences:
        return [Expectation(what="snapshot", rank=rank, expected=name, got=got, met=False) for rank, got in differences]
    left = all(ended.get(rank, whole) for rank in before)
    got = "the same" if left else "the same until the ranks stopped"
    got = f"{got}: {count_calls(texts_of(evidence.trace))}"
    return [Expectation(what="snapshot", expected=name, got=got, met=left)]


class RecordedCalls(dict[int, tuple[str, ...]]):
    """Calls of a run: by rank, one line per call, in order. Its representation is the text of a snapshot.

    Args:
        result: The run, whose record is read.

    Raises:
        LabError: The run has no record.
    """

    home: SnapshotHome | None = None
    """Shared by all results while a test runs."""

    def __init__(self, result: Result) -> None:
        if result.path is None:
            raise RecordError("the run has no record, so its calls are unknown")
        self._result, self._evidence = result, read_evidence(Record(path=result.path))
        super().__init__(texts_of(self._evidence.trace))

    def __repr__(self) -> str:
        return write_calls(self).rstrip()

    def matches_snapshot(self, path: str | Path | None = None, *, update: bool | None = None) -> bool:
        """Compare the calls with a file; a missing one is written, except in CI.

        Args:
            path: The file; None: next to the script of the run or, in a test, next to the test.
            update: True: rewrite it; False: do not even write a missing one.

        Returns:
            True.

        Raises:
            AssertionError: Calls differ; the message describes the differences.
        """
        __tracebackhide__ = True  # the message is complete without a traceback
        home = type(self).home
        if update is None and home is not None:
            update = home.update
        file = self._file(path)
        expectations = compare_snapshot(file, self._evidence, update=update, fine=self._result.passed)
        if unmet := [one.sentence() for one in expectations if not one.met]:
            ended = [] if self._result.passed else [f"the run did not pass: {self._result.reason}"]
            raise AssertionError("\n".join([*unmet, *ended, f"({file.how} rewrites it)"]))
        return True

    def _file(self, path: str | Path | None) -> SnapshotFile:

        home, plan = type(self).home, self._evidence.record.plan()
        how = "`matches_snapshot(update=True)`" if home is None else home.how
        folder = Path() if home is None else home.file.parent
        size = plan.nnodes or 1, plan.nproc_per_node or 1
        if path is not None:
            resolved = Path(os.path.abspath(folder / path))
            return SnapshotFile(path=resolved, of=f"{plan.scenario} on {size[0]} x {size[1]}", how=how)
        if home is None:
            return locate_snapshot(Path(plan.script), *size, how=how)
        run = self._evidence.record.run
        if run not in home.runs:
            home.runs.append(run)
        turn = home.runs.index(run) + 1
        name = home.name if turn == 1 else f"{home.name}-{turn}"
        return locate_snapshot(home.file.with_name(f"{home.file.stem}.{name}.py"), *size, how=how)


def use_test_snapshots(file: Path, name: str, how: str, update: bool | None) -> Callable[[], None]:
    """Make `matches_snapshot()` use files next to the file of a test; return a function that ends this."""
    RecordedCalls.home = SnapshotHome(file=file, name=name, how=how, update=update)
    return partial(setattr, RecordedCalls, "home", None)
