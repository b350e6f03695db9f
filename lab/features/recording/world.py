"""The ranks that met in one place: their record, whether they still make progress, and the verdict."""

from __future__ import annotations

import copy
import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from lab.diagnosis.facts import RunFacts
from lab.errors import RecordError
from lab.node.messages.agent import Exited, Halted, Joined, Note, Stack, Started
from lab.node.processes import TICK_S, children_of, filter_catching, parent_of, read_stat, read_used_s
from lab.node.rank_process import JoinedProcess
from lab.node.statement import STACK_SIGNAL
from lab.record.events import Clock, Event, NodeLost, Over, TimedOut
from lab.record.layout import MOST_RANKS, PLAN, TRACE, rank_trace
from lab.record.record_files import MOST_LINES_BYTES, open_file, shows_progress
from lab.record.write import RecordWriter
from lab.words import format_count, format_duration, name_ranks

if TYPE_CHECKING:
    from lab.diagnosis.evidence import Evidence, Judgement
    from lab.record.read import Record
    from lab.record.result import Culprit, Result
    from lab.spec.scenario import Verdict

_ENDED_BY_OTHERS = ("SIGTERM", "SIGKILL", "SIGINT", "SIGHUP")
"""Signals by which launchers, test suites, and users end ranks."""
_GROUP = re.compile(rb'^\{"k":"(?:group|cut)"', re.MULTILINE)
_XDIST = "exec(eval(sys.stdin.readline()))"
"""In command lines of pytest-xdist's workers, of which each runs tests of its own."""
_LINE = re.compile(r":\d+")
_WAITS_FOR_TASK = re.compile(
    r'\A(?:  File "[^\n]*/(?:multiprocessing/\w+|threading|selectors|queue)\.py", [^\n]*\n)+'
    r'  File "[^\n]*/(?:multiprocessing/pool|concurrent/futures/process|common_distributed)\.py", line \d+ in \w*worker'
)
"""The innermost lines of a stack."""
_STACK_WAIT_S = 0.3
_PIECE_BYTES = 1 << 20
_OF_RANKS = (Exited, Note, Stack, Halted)
"""What is imported of a record."""
_CLOCK_ERROR_S = 0.1
"""Most difference of the clocks of machines in a cluster; NTP keeps them within some milliseconds."""
PATIENCE = 3
"""A rank that computes may let others wait this many times as long."""

Processes = Mapping[int, JoinedProcess]
"""By rank."""


class World:
    """The processes that met in one place, as the ranks of a run.

    Args:
        runs: folder of all runs.
        name: of the command.
        folder: folder of the user's scripts.
        first: its first rank, which `add` adds.
    """

    def __init__(self, runs: Path, name: str, folder: Path, first: Joined) -> None:
        self.writer = RecordWriter(runs, name)
        self.name = name
        self.world_size = first.world_size
        self.meeting = first.meeting
        self.began = first.time
        self.members: dict[int, Joined] = {}
        """By rank."""
        self.result: Result | None = None
        self.stopped_at = 0.0
        """When its ranks were first ended because they waited too long."""
        self.progressed = time.monotonic()
        """When a call of a rank last began or ended, or a rank joined or ended."""
        self._folder = folder
        self._facts = RunFacts(ranks=[])
        self._exits: dict[int, Exited] = {}
        """By rank; written at the end, because only then it is known who ended whom."""
        self._stall: list[Event] = []
        """The facts of a standstill that has not ended."""
        self._lost, self._parts = list[NodeLost](), list[Path]()
        """Of an imported job: machines whose records have no end, and all records."""
        self._have_met = False
        """Whether all ranks have met: a rank's trace then has a line about a group."""
        self._absent_at = ""
        """Line of the only rank that did not come."""
        self._examined = 0.0
        self.is_patient = False
        """Whether a rank computed when the world was examined, which may take longer."""
        self._computing: list[int] = []
        """Such ranks."""
        self._cpu: tuple[float, dict[int, float]] | None = None
        """When the CPU time of the ranks was read since the last progress, and what it was."""

    # -- what its processes report

    def accepts(self, joined: Joined) -> bool:
        """Return whether a process that joins belongs to these ranks."""
        is_other = joined.world_size != self.world_size or len({joined.meeting, self.meeting, ""}) == 3
        if self.result is not None or is_other or joined.claimed_rank in self.members:
            return False
        last = max((exited.time for exited in self._exits.values()), default=0.0)
        return self.is_running or started_at(joined.pid) + TICK_S <= last

    def add(self, joined: Joined) -> None:
        """Add a rank."""
        rank = joined.claimed_rank
        self.members[rank], self.meeting = joined, self.meeting or joined.meeting
        self.add_fact(Started(rank, joined.time, joined.node, pid=joined.pid))
        numbers = defaultdict[str, Iterator[int]](count)
        nodes = {one: self.members[one].node for one in sorted(self.members)}
        workers = list[dict[str, object]]()
        for one, node in nodes.items():
            self._facts.rank(one).local_rank = number = next(numbers[node])
            workers.append({"rank": one, "node": node, "local_rank": number})
        known = {"workers": workers, "began": self.began, "world_size": self.world_size, "meeting": self.meeting}
        self.writer.describe_foreign({"run": self.writer.run, "scenario": self.name, **known})
        self._note_progress()

    def add_trace(self, rank: int, lines: bytes) -> None:
        """Add lines of a rank's recorder."""
        self.writer.trace(rank, lines)
        self._have_met = self._have_met or bool(_GROUP.search(lines))
        if shows_progress(lines):
            self._note_progress()

    def add_exit(self, exited: Exited) -> None:
        """Add the end of a rank."""
        if "SkipTest" in exited.error.partition(":")[0]:  # PyTorch's tests end so
            exited = exited._replace(code=0, error="", traceback="", raised=None)
        self._exits[exited.rank] = self.shorten(exited)
        if not self._stall:  # ends after a standstill are no progress: somebody gave up
            self.progressed = time.monotonic()

    def shorten(self, exited: Exited) -> Exited:
        """Return an end whose stacks name the user's files as those of a script."""
        known = {name: text for name in ("traceback", "stack") if (text := getattr(exited, name))}
        if not known:
            return exited
        from lab.diagnosis.stacks import name_own_files

        return exited._replace(**{name: name_own_files(text, self._folder) for name, text in known.items()})

    def failed_before(self, when: float) -> bool:
        """Return whether a rank failed before a Unix time."""
        return any(exited.code not in (0, None) and exited.time < when for exited in self._exits.values())

    @property
    def is_running(self) -> bool:
        """Whether a rank is running."""
        return self.members.keys() > self._exits.keys()

    def _note_progress(self) -> None:
        self.progressed, self._stall, self._cpu, self.is_patient = time.monotonic(), [], None, False

    def add_fact(self, event: Event) -> None:
        """Add a fact, such as a value that a rank noted."""
        self._facts.add(event)
        self.writer.event(event)

    # -- a standstill

    def is_due(self, limit_s: float, processes: Callable[[], Processes]) -> bool:
        """Return whether nothing has happened for so long that the ranks have to be examined.

        Args:
            limit_s: seconds without progress.
            processes: returns the running ones, by rank.
        """
        now = time.monotonic()
        if not self.is_running or (self._stall and not self.is_patient):
            return False
        silent_s = now - max(self.progressed, 0.0 if self._stall else self._examined)
        if self._cpu is None and silent_s >= limit_s / 2:
            self._cpu = now, {rank: _cpu_time(one) for rank, one in processes().items()}
        return silent_s >= limit_s * (PATIENCE if self._stall else 1)

    def examine(self, processes: Processes, limit_s: float, others: list[Exited], idle: bool = False) -> Result | None:
        """Return what the ranks wait for; None if none of them waits for others.

        Args:
            processes: the running ones, by rank.
            limit_s: seconds without progress.
            others: what is known of ranks whose part in the world has ended, but not their process.
            idle: return a result even if none waits.
        """
        from lab.diagnosis.ends import IDLE_TO, Standing
        from lab.diagnosis.hang import find_working
        from lab.diagnosis.stacks import name_own_files

        since, before = self._cpu or (time.monotonic(), {rank: _cpu_time(one) for rank, one in processes.items()})
        last = {process.pid: process for process in processes.values()}  # one request brings the stacks of all threads
        for process in processes.values():
            process.begin_stack(requests=last[process.pid] is process)
        time.sleep(_STACK_WAIT_S)
        if not all(map(_stack_of, processes.values())):  # the machine is busy
            time.sleep(2 * _STACK_WAIT_S)
        now, self._examined, self._cpu = time.time(), time.monotonic(), None
        used = {rank: _cpu_time(one) - before.get(rank, 0.0) for rank, one in processes.items()}
        loads = {rank: seconds / (self._examined - since) for rank, seconds in used.items()}
        patient, limit_s = not (idle or self._stall), limit_s * (PATIENCE if self._stall else 1)
        stacks = {rank: name_own_files(_stack_of(one), self._folder) for rank, one in processes.items()}
        returned = {rank: one for rank, one in processes.items() if waits_for_task(one)}  # the task of a pool has ended
        if len(returned) < len(processes):
            ends = (one.describe_exit(now, 0, 0)._replace(rank=rank) for rank, one in returned.items())
            others, stacks = [*others, *ends], {one: text for one, text in stacks.items() if one not in returned}
        self._stall = [
            *map(self.shorten, others),
            *(Stack(one, now, text=text or "(no Python stack)", load=loads[one]) for one, text in stacks.items()),
        ]
        halted = (rank for rank, process in processes.items() if read_stat(process.pid)[:1] == [b"T"])
        self._stall += [*(Halted(rank, now, signal="SIGSTOP") for rank in halted), TimedOut(now, limit_s)]
        self._absent_at = "" if self._have_met else self._locate_absent()
        evidence = self._evidence([*self._exits.values(), *self._stall])
        is_idle = self.world_size > 1 and not self._exits and all(load <= IDLE_TO for load in loads.values())
        idle = idle or (is_idle and _is_inside(evidence))
        if not idle and len(self.members) == self.world_size and not evidence.is_in_call:
            self._stall = []
            return None
        self._computing = [*find_working(evidence, Standing.of(evidence).absent if self._have_met else [])]
        self.is_patient = patient and bool(self._computing)
        return self._judged(evidence, self._judge_stall(evidence))

    @property
    def waits(self) -> bool:
        """Whether a running rank waits for others: in a call, or for a rank that did not come."""
        is_meeting = len(self.members) < self.world_size and not self._have_met
        return self.is_running and (is_meeting or self._evidence(()).is_in_call)

    def judge_now(self, others: Iterable[Exited]) -> Result:
        """Return the verdict on ranks whose processes still run; see `examine`."""
        from lab.diagnosis.judge import judge_evidence

        over = Over(time.time(), duration_s=time.time() - self.began)
        evidence = self._evidence([*map(self.shorten, others), *self._exits.values(), over])
        return self._judged(evidence, self._without_strangers(judge_evidence(evidence), evidence, others_run=True))

    def stop(self, processes: Iterable[JoinedProcess], number: int) -> None:
        """End ranks by a signal."""
        self.stopped_at = self.stopped_at or time.monotonic()
        for process in processes:
            process.stopped = True
            with suppress(OSError):
                signal.pidfd_send_signal(process.pidfd, number)

    def _judge_stall(self, evidence: Evidence) -> Judgement:
        limit = format_duration(next(one.timeout_s or 0.0 for one in self._stall if isinstance(one, TimedOut)))
        after = f"no call of {format_count(len(self.members), 'rank')} began or ended for {limit}"
        if not self._have_met:
            return self._judge_absence("hung", f"{after}: ")
        from lab.diagnosis.judge import judge_evidence

        if any(rank.failed for rank in evidence.facts.ranks):
            failure = self._without_strangers(judge_evidence(evidence), evidence)
            return replace(failure, verdict="hung", reason=f"{after}: {failure.reason}")
        after += f" while {name_ranks(self._computing)} computed" if self._computing else ""
        judgement = self._judge_hang(evidence, after)
        return replace(judgement, verdict="timeout", culprit=None) if self.is_patient else judgement

    def _judge_hang(self, evidence: Evidence, after: str) -> Judgement:
        """Return who held the others up; what ranks did that are not on record is unknown."""
        from lab.diagnosis.hang import judge_hang

        judgement, here = judge_hang(evidence, after), len(self.members) == self.world_size
        if not here and (judgement.culprit is None or judgement.culprit.rank not in self.members):
            lines = {rank: evidence.last_line(rank) for rank in self.members}
            last = (f"the last call of rank {rank} was at {line}" for rank, line in sorted(lines.items()) if line)
            judgement = _judgement("hung", "; ".join((after, *last)))
        return self._without_strangers(judgement, evidence)

    def _judge_absence(self, verdict: Verdict, before: str) -> Judgement:
        """Return that ranks never came to init_process_group; a single one is the culprit."""
        from lab.record.result import Culprit

        absent = [rank for rank in range(self.world_size) if rank not in self.members]
        waited = f"{name_ranks(self.members)} waited in init_process_group"
        error = f"never joined the world of {self.world_size} ranks"
        error += f" and was at {self._absent_at}" if self._absent_at else ""
        culprit = Culprit(rank=absent[0], error=error, cause="never_entered") if len(absent) == 1 else None
        reason = f"{before}{name_ranks(absent)} {error}; {waited}" if absent else f"{before}{waited}"
        return _judgement(verdict, reason, culprit)

    def _locate_absent(self) -> str:
        """Return the line of the only rank that did not come, if only one process next to the others can be that."""
        from lab.diagnosis.stacks import find_location, name_own_files

        known, children = {one.pid for one in self.members.values()}, children_of()
        others = {pid for one in {*map(parent_of, known)} - {0, 1} for pid in children(one)} - known
        able = filter_catching(STACK_SIGNAL, [pid for pid in others if _XDIST not in read_text(f"/proc/{pid}/cmdline")])
        if len(able) != 1 or self.world_size - len(self.members) != 1:
            return ""
        with suppress(OSError):
            files = [one for one in Path(f"/proc/{able[0]}/fd").iterdir() if "memfd:stack" in os.readlink(one)]
            sizes = {file: file.stat().st_size for file in files}  # a fork also has those of its parent
            os.kill(able[0], STACK_SIGNAL)
            time.sleep(2 * _STACK_WAIT_S)
            stack = b"".join(file.read_bytes()[size:] for file, size in sizes.items()).decode(errors="replace")
            own = stack.partition("multiprocessing/popen_fork.py")[0]  # the rest is where its parent forked it
            location = find_location(name_own_files(own, self._folder), self.writer.path)
            return location.at if location is not None and location.own else ""
        return ""

    def _without_strangers(self, judgement: Judgement, evidence: Evidence, *, others_run: bool = False) -> Judgement:
        """Return the judgement without a culprit that is not on record, or lost a peer that is not, or still runs."""
        from lab.diagnosis.errors import lost_a_peer

        culprit, is_whole = judgement.culprit, len(self.members) == self.world_size
        if culprit is None or culprit.rank not in self.members:
            culprit = culprit if is_whole else None
        elif (others_run or not is_whole) and lost_a_peer(evidence.ranks[culprit.rank]):
            culprit = None
        if is_whole:
            return replace(judgement, culprit=culprit)
        recorded = f"only {name_ranks(self.members)} of {self.world_size} ranks are on record"
        return replace(judgement, reason=f"{judgement.reason}; {recorded}", culprit=culprit)

    # -- the end

    def conclude(self) -> Result:
        """Judge the ranks, and write the result."""
        from lab.run.outcome import copy_sources

        for event in self._last_events():
            self.add_fact(event)
        evidence = self._evidence(())
        result = self._judged(evidence, self._judge(evidence))
        for folder in (self._folder, *self._parts):
            copy_sources(self._facts, self.writer, folder, None)
        self.writer.finish(result)
        self.result = result
        return result

    def _last_events(self) -> list[Event]:
        """Return the ends of the ranks, and how they stood before, in the order in which the diagnosis needs them."""
        exits = sorted(self._exits.values(), key=lambda one: one.time)
        # ranks that failed, and that nobody else ended
        own = [one for one in exits if one.raised or one.code or (one.signal or "SIGTERM") not in _ENDED_BY_OTHERS]
        first = min((exited.raised or exited.time for exited in own), default=0.0)
        # launchers of other machines may have ended ranks of this one
        is_partial = bool(self._parts) or len(self.members) < self.world_size
        all_failed = bool(own) and all(exited.code != 0 for exited in exits)
        lost_it = all_failed and not is_partial and self._lost_peers_only(own)
        killed = (one for one in exits if lost_it and one.signal and one not in own and one.time <= own[0].time)
        cause = next(killed, None)
        known = {one.rank for one in self._stall if isinstance(one, Exited)}
        began = self._stall[-1].time if self._stall else 0.0
        ends = list[Exited]()
        for exited in (one for one in exits if one.rank not in known):
            by_others = exited.signal in _ENDED_BY_OTHERS and not exited.raised
            by_others &= exited.time >= first or (is_partial and exited.signal != "SIGKILL")
            kill = exited.signal == "SIGKILL" and not own  # nobody ends a rank that way without a reason
            ends.append(exited._replace(stopped=exited.stopped or (by_others and not kill and exited is not cause)))
        early = sum(one.time < began for one in ends)
        ended = max([*(one.time for one in exits), *(one.time for one in self._lost)], default=time.time())
        lost = (one._replace(time=ended) for one in self._lost)  # nobody knows when before that
        over = Over(time.time(), duration_s=max(0.0, ended - self.began))
        return [*ends[:early], *self._stall, *ends[early:], *lost, over]

    def _lost_peers_only(self, failed: list[Exited]) -> bool:
        """Return whether ranks failed only because other ranks were gone."""
        from lab.diagnosis.errors import has_timed_out, lost_a_peer

        ranks = map(self._evidence(failed).facts.rank, [one.rank for one in failed])
        return all(lost_a_peer(rank) and not has_timed_out(rank) for rank in ranks)

    def _judge(self, evidence: Evidence) -> Judgement:
        from lab.diagnosis.errors import lost_a_peer
        from lab.diagnosis.judge import judge_evidence

        if self._stall:
            return self._judge_stall(evidence)
        facts = evidence.facts
        after = format_duration(facts.duration_s)
        if self.is_running:
            left = sorted(self.members.keys() - self._exits.keys())
            reason = f"{name_ranks(left)} still ran when the command ended, {after} after the first rank joined"
            return _judgement("error", reason)
        waited_only = all(rank.stopped or lost_a_peer(rank) for rank in facts.ranks if rank.stopped or rank.failed)
        if not self._have_met and waited_only and any(rank.stopped or rank.failed for rank in facts.ranks):
            return self._judge_absence("failed", "")
        ended_by_others = [rank.rank for rank in facts.ranks if rank.stopped]
        if ended_by_others and not any(rank.failed for rank in facts.ranks):
            if evidence.is_in_call:
                return self._judge_hang(evidence, f"another process ended {name_ranks(ended_by_others)} after {after}")
            reason = f"another process ended {name_ranks(ended_by_others)} between calls, after {after}"
            return _judgement("passed", reason)
        return self._without_strangers(judge_evidence(evidence), evidence)

    def _evidence(self, events: Iterable[Event]) -> Evidence:
        """Return what is known with these events, which are not in the record yet."""
        from lab.diagnosis.evidence import Evidence
        from lab.record.read import Record

        facts = copy.deepcopy(self._facts) if events else self._facts
        for event in events:
            facts.add(event)
        return Evidence(facts=facts, record=Record(path=self.writer.path))

    def _judged(self, evidence: Evidence, judgement: Judgement) -> Result:
        from lab.record.result import Result
        from lab.run.outcome import EXIT_CODES, describe_judgement, rank_result

        culprit = judgement.culprit
        if culprit is not None and culprit.rank in self._exits and not _LINE.search(culprit.error):
            trace, line = evidence.trace.ranks.get(culprit.rank), evidence.last_line(culprit.rank)
            last = f"; the last call of rank {culprit.rank} was at {line}" if line else ""
            exited = f"; it exited at {trace.exited_at}" if trace is not None and trace.exited_at else last
            judgement = replace(judgement, reason=f"{judgement.reason}{exited}")
        ranks = tuple(rank_result(rank, self.writer) for rank in evidence.facts.ranks)
        known = {**describe_judgement(judgement, evidence.facts), "exit_code": EXIT_CODES[judgement.verdict]}
        return Result(**known, scenario=self.name, run=self.writer.run, path=self.writer.path, ranks=ranks)


class _ImportedWorld(World):
    """Ranks of several machines, each of which has recorded its own."""

    is_running = False
    """Ranks without an end were lost with their machine."""

    def conclude(self) -> Result:
        """Judge the ranks, and write the result."""
        if not self._evidence(()).is_in_call:
            self._stall = []  # a machine alone does not know that the others computed
        return super().conclude()

    def _judge(self, evidence: Evidence) -> Judgement:
        from lab.diagnosis.errors import lost_a_peer

        ranks = evidence.facts.ranks
        stopped = [rank.rank for rank in ranks if rank.stopped]
        losers = [rank.rank for rank in ranks if rank.failed and lost_a_peer(rank)]
        if self._stall or self._lost or not (stopped and losers) or len(stopped) + len(losers) < len(ranks):
            return super()._judge(evidence)
        after = f"another process ended {name_ranks(stopped)} {format_duration(evidence.facts.duration_s)} after"
        return _judgement("error", f"{after} the first rank joined, and {name_ranks(losers)} lost a peer")

    def add_part(self, part: Record, ranks: Mapping[int, Joined]) -> None:
        """Add the record of a machine, with its ranks."""
        self._parts.append(part.path)
        stall = self._stall
        for rank, joined in ranks.items():
            self.add(joined)
            with suppress(OSError), open_file(part.path, f"{TRACE}/{rank_trace(rank)}", MOST_LINES_BYTES) as trace:
                for data in iter(partial(trace.read, _PIECE_BYTES), b""):
                    self.add_trace(rank, data)
        node = next(iter(ranks.values())).node
        self.add_fact(Clock(time=self.began, node=node, error_s=_CLOCK_ERROR_S))
        events = [*part.events()]
        own = [one._replace(node=node) for one in events if isinstance(one, _OF_RANKS) and one.rank in ranks]
        for event in own:
            if isinstance(event, Exited):
                self.add_exit(event)
            elif isinstance(event, Note):
                self.add_fact(event)
        limits = [one for one in (*stall, *events) if isinstance(one, TimedOut)][:1]
        stacks = [one for one in (*stall, *own) if isinstance(one, (Stack, Halted))]
        self._stall = [*stacks, *limits] if limits else []
        if not part.complete:
            self._lost.append(NodeLost(max(one.time for one in events), node, "left a record without an end"))


def import_worlds(folder: Path, runs: Path, name: str) -> list[Result]:
    """Make one record of each world of a job from the records of its machines, which are in this folder.

    Raises:
        RecordError: there are none, or a record cannot be written.
    """
    from lab.record.read import Record

    worlds = list[_ImportedWorld]()
    with ExitStack() as undo:
        for part in sorted((Record(path=path.parent) for path in folder.rglob(PLAN)), key=Record.began):
            known, node = part.json(PLAN) or {}, part.path.relative_to(folder).parent.name
            size, meeting = known.get("world_size"), str(known.get("meeting", ""))
            size = size if isinstance(size, int) and size <= MOST_RANKS and not known.get("engine") else 0
            started = {one.rank: one for one in part.events() if isinstance(one, Started) and 0 <= one.rank < size}
            if not started:
                continue
            ranks = {
                rank: Joined(rank, one.time, node, pid=one.pid, claimed_rank=rank, world_size=size, meeting=meeting)
                for rank, one in started.items()
            }
            fitting = (one for one in reversed(worlds) if (one.world_size, one.meeting) == (size, meeting))
            if (world := next((one for one in fitting if not one.members.keys() & ranks.keys()), None)) is None:
                world = _ImportedWorld(runs, name, part.path, min(ranks.values(), key=lambda one: one.time))
                worlds.append(world)
                undo.callback(world.writer.discard)
            world.add_part(part, ranks)
        results = [world.conclude() for world in worlds]
        undo.pop_all()
    if not worlds:
        hint = "name the folder that has the records of all nodes: `lab record -o FOLDER/node0 -- torchrun ...`"
        raise RecordError(f"{folder} has no records of `lab record`", hint)
    return results


def _judgement(verdict: Verdict, reason: str, culprit: Culprit | None = None) -> Judgement:
    """Return a judgement without findings. Only worlds that are judged need the diagnosis, which imports slowly."""
    from lab.diagnosis.evidence import Judgement

    return Judgement(verdict=verdict, reason=reason, culprit=culprit)


def _is_inside(evidence: Evidence) -> bool:
    """Return whether all ranks still have their group, and run Python code."""
    phases = (phase.name for rank in evidence.trace.ranks.values() for phase in rank.phases)
    return "destroy_process_group" not in phases and all("File" in rank.stack for rank in evidence.ranks.values())


def _stack_of(process: JoinedProcess) -> str:
    """Return the stacks of a process, or only that of a thread that is a rank."""
    parts = re.split(r"^(?=(?:Current t|T)hread 0x)", process.stack, flags=re.MULTILINE)
    own = (one for one in reversed(parts) if f"hread 0x{process.thread:016x} " in one[:50])
    return next(own, "") if process.thread else process.stack


def waits_for_task(process: JoinedProcess) -> bool:
    """Return whether the main thread of a process waits for its next task."""
    return bool(_WAITS_FOR_TASK.match(process.stack.rpartition("Current thread")[2].partition("\n")[2]))


def _cpu_time(process: JoinedProcess) -> float:
    """Return how much a process has computed, see `read_used_s`; of a thread, 0."""
    return 0.0 if process.thread else read_used_s(process.pid)


def read_text(path: str) -> str:
    """Return what a file of the kernel contains; empty if the process has ended."""
    with suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""


def started_at(pid: int) -> float:
    """Return the Unix time at which a process started; that of now if it has ended."""
    if not (stat := read_stat(pid)):
        return time.time()
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(stat[19]) * TICK_S
