"""Look at the ranks of a world twice, and say what each does, who moves on, and who waits for whom."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from lab.diagnosis.causes import find_causes
from lab.diagnosis.ends import find_waits, stood_of
from lab.diagnosis.evidence import Evidence, read_evidence
from lab.diagnosis.facts import RunFacts
from lab.diagnosis.finding import ELSEWHERE, Finding
from lab.diagnosis.stacks import clip_stack, shorten_stack
from lab.diagnosis.wording import render_stood
from lab.errors import LabError
from lab.features.attach.calls import find_record, ranks_of, read_dumps
from lab.features.attach.processes import Rank, Unable, read_command
from lab.features.attach.spy import Sample, is_denied, read_samples
from lab.features.dumps.dump import Dumps
from lab.features.dumps.record import import_dumps
from lab.features.recording.verb import name_of
from lab.grouping import group_pairs
from lab.node.messages.agent import Stack
from lab.record.read import Record
from lab.report.style import Style
from lab.words import capitalize_first, format_count, format_duration, join_words, name_ranks

_SHIPPED = "/run/work/"
"""Where the diagnosis looks for files of the script, see `lab.diagnosis.stacks`."""
_CLUSTER = "/labnode/node/rank/worker.py"
_JOB = re.compile(r'torch/distributed/|torch/multiprocessing/spawn\.py"')
"""A process that has not joined and has no such file on its stack is no rank."""
_OUTER = tuple(f'  File "{one}' for one in ELSEWHERE)
_BUSY = 0.3
"""A rank that used more of a CPU is busy."""
_MOST_CHILDREN, _MOST_POSITIONS, _STACK_LINES = 4, 3, 12
"""Limits: processes of a rank whose stacks are read, positions in the sentence, and lines of a stack."""
_PERMISSION = (
    "run it as root; in a container, with `docker run --cap-add SYS_PTRACE`; "
    "if /proc/sys/kernel/yama/ptrace_scope is 1, `sysctl kernel.yama.ptrace_scope=0` allows it"
)


class RankLook(NamedTuple):
    """What a rank does."""

    pid: int
    rank: int | None
    """None if unknown."""
    where: str
    """What it does, after `rank 1 is`: `in all_reduce at train.py:9`."""
    call: str = ""
    """The function of torch.distributed that it is in; empty: none."""
    at: str = ""
    """The line of the script."""
    moved: bool | None = None
    """Whether its stack or its variables changed between two looks; None if unknown."""
    is_busy: bool = False
    """Whether it used a CPU."""
    is_stopped: bool = False
    """Whether a signal stopped it."""
    stack: str = ""

    @property
    def waits(self) -> bool:
        """Whether it stayed in a call."""
        return bool(self.call) and self.moved is False and not self.is_stopped


class WorldLook(NamedTuple):
    """What the ranks of a world do."""

    name: str
    """Of the command that started them."""
    launcher: int
    """Its process id."""
    sentence: str
    ranks: tuple[RankLook, ...]
    world_size: int | None
    apart_s: float
    """Seconds between the two looks; 0: there was one."""
    calls: str
    """Where the calls are known from, or how to know them."""
    finding: Finding | None
    """What the calls show."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        finding = self.finding.to_json() if self.finding is not None else None
        return {**self._asdict(), "ranks": [rank._asdict() for rank in self.ranks], "finding": finding}


def look_at(ranks: list[Rank], program: str, apart_s: float, timeout_s: float) -> WorldLook | None:
    """Return what the ranks of a world do; None if its processes turn out to be no ranks.

    Args:
        ranks: all of the world on this machine.
        program: py-spy.
        apart_s: seconds between the two looks; 0: one look is enough.
        timeout_s: for reading one process.

    Raises:
        Unable: this user may not read any of them.
    """
    pids, began = [rank.pid for rank in ranks], time.monotonic()
    children = {rank.pid: rank.children[:_MOST_CHILDREN] for rank in ranks}
    first = last = read_samples(program, [*pids, *(pid for of in children.values() for pid in of)], timeout_s)
    if all(is_denied(first[pid]) for pid in pids):
        raise Unable(f"the system does not let this user read {_processes(pids)}", _PERMISSION)
    is_known = any(rank.number is not None or rank.is_joined for rank in ranks)
    if not is_known and not any(_JOB.search(first[pid].stack) for pid in pids):
        return None
    record = find_record(ranks)
    numbers = _number(ranks, first) | (ranks_of(record) if record is not None else {})
    with TemporaryDirectory(prefix="lab-attach-") as folder:
        if record is None:
            port = next((port for one in first.values() if (port := one.values.get("port"))), None)
            calls = _import(read_dumps(port, timeout_s), Path(folder)) if port else None
        else:
            calls = read_evidence(record)
        if apart_s:
            time.sleep(max(0.0, began + apart_s - time.monotonic()))
            last = read_samples(program, pids, timeout_s)
        evidence = calls or Evidence(facts=RunFacts(ranks=[]), record=Record(path=_folder(pids[0])))
        looks = []
        for pid, number in numbers.items():
            parts = [f"Process {one}, started by this worker:\n{first[one].stack}" for one in children[pid]]
            text = _own_files("\n".join([last[pid].stack, *parts]), _folder(pid))
            looks.append(_look(pid, number, text, evidence, first[pid], last[pid], apart_s))
        finding = _find_cause(evidence, {one.rank for one in looks if one.moved is False}) if calls else None
    launcher = Counter(rank.process.parent for rank in ranks).most_common(1)[0][0] if len(ranks) > 1 else pids[0]
    size = max(rank.size or first[rank.pid].values.get("world_size", 0) for rank in ranks)
    if record is not None:
        how = f"from its record: `lab watch {record.path}`, `lab explain {record.path}`"
    elif any(_CLUSTER in first[pid].stack for pid in pids):
        how = "from the record of the lab, which started these ranks: `lab watch`"
    else:
        how = "from PyTorch's flight recorder" if calls else "unknown; `lab record` starts a job so that they are known"
    sentence = _sentence(looks, finding, size, apart_s)
    name = name_of(read_command(launcher))
    return WorldLook(name, launcher, sentence, tuple(looks), size or None, apart_s, how, finding)


def _number(ranks: Sequence[Rank], samples: Mapping[int, Sample]) -> dict[int, int | None]:
    """Return the rank of each process: of its environment, or else of its variables if these differ from each other."""
    held = [samples[rank.pid].values.get("rank") for rank in ranks]
    is_usable = any(rank.number is None for rank in ranks) and None not in held and len({*held}) == len(held)
    return {rank.pid: number if is_usable else rank.number for rank, number in zip(ranks, held, strict=True)}


def _import(dumps: Mapping[int, bytes], folder: Path) -> Evidence | None:
    (folder / "dumps").mkdir()
    for rank, data in dumps.items():
        (folder / "dumps" / f"rank_{rank}").write_bytes(data)
    with suppress(LabError):  # no dump, or none that can be read
        return read_evidence(import_dumps(Dumps(folder / "dumps"), "job", folder / "runs"))
    return None


def _folder(pid: int) -> Path:
    with suppress(OSError):
        return Path(os.readlink(f"/proc/{pid}/cwd"))
    return Path("/")


def _own_files(stack: str, folder: Path) -> str:
    """Return a stack with paths as the diagnosis expects them."""
    return re.sub(rf'(?<=File "){re.escape(f"{folder}/")}(?![^"\n]*/(?:site-packages|lib/python\d))', _SHIPPED, stack)


def _look(
    pid: int, number: int | None, text: str, evidence: Evidence, before: Sample, now: Sample, apart_s: float
) -> RankLook:
    """Add a stack to the evidence; a process whose rank is unknown has its pid instead."""
    if now.error or before.process is None or now.process is None:
        return RankLook(pid, number, f"unknown ({now.error or 'it has ended'})")
    evidence.facts.add(Stack(pid if number is None else number, time.time(), text=text))
    facts = next(one for one in evidence.facts.ranks if one.rank == (pid if number is None else number))
    location, is_stopped = evidence.stack_location(facts), now.process.state in "Tt"
    lines = clip_stack(shorten_stack(text), _STACK_LINES)
    while len(lines) > 1 and lines[-1].startswith(_OUTER):
        lines.pop()
    return RankLook(
        pid,
        number,
        where=("stopped by a signal, " if is_stopped else "") + render_stood(stood_of(evidence, facts)),
        call=location.call if location is not None else "",
        at=location.at if location is not None else "",
        moved=before.trail != now.trail if apart_s else None,
        is_busy=now.process.cpu_s - before.process.cpu_s > _BUSY * apart_s > 0,
        is_stopped=is_stopped,
        stack="\n".join(lines),
    )


def _find_cause(evidence: Evidence, still: set[int | None]) -> Finding | None:
    """Return what the calls show; None if they show nothing, or if a rank that was in a call has moved on."""
    if not still.issuperset(waits := find_waits(evidence)) or not waits:
        return None
    causes = (one for one in find_causes(evidence) if "ends" in one.kind.properties)
    return next((one for one in causes if one.step), None)


# -- words


def _processes(pids: Sequence[int]) -> str:
    return f"process{'es' if len(pids) > 1 else ''} {join_words(map(str, pids))}"


def _who(looks: Iterable[RankLook]) -> str:
    """Name ranks, or processes whose ranks are unknown."""
    looks = [*looks]
    ranks = [one.rank for one in looks if one.rank is not None]
    return name_ranks(ranks) if len(ranks) == len(looks) else _processes([one.pid for one in looks])


def _positions(looks: Iterable[RankLook]) -> list[list[RankLook]]:
    """Group ranks that do the same; ranks in calls come first."""
    groups = group_pairs(((one.where, one.waits), one) for one in looks)
    return sorted(groups.values(), key=lambda group: (not group[0].call, -len(group)))


def _sentence(looks: Sequence[RankLook], finding: Finding | None, size: int, apart_s: float) -> str:
    """Return what the ranks do and whether they move on; with stacks alone, nobody is to blame."""
    groups, known = _positions(looks), {one.rank for one in looks}
    verbs = [(("waits", "wait") if group[0].waits else ("is", "are"))[len(group) > 1] for group in groups]
    places = [f"{_who(group)} {verb} {group[0].where}" for verb, group in zip(verbs, groups, strict=True)]
    if left := sum(map(len, groups[_MOST_POSITIONS:])):
        places[_MOST_POSITIONS:] = [f"{format_count(left, 'other rank')} elsewhere"]
    parts = [f"{'; '.join(places)}." if finding is None else finding.sentence]
    if None not in known and (absent := [rank for rank in range(size) if rank not in known]):
        parts.append(f"{name_ranks(absent)} {'has' if len(absent) == 1 else 'have'} no process on this machine.")
    return " ".join(map(capitalize_first, [*parts, _movement(looks, apart_s)]))


def _movement(looks: Sequence[RankLook], apart_s: float) -> str:
    moved, within = [one for one in looks if one.moved], f"within {format_duration(apart_s)}"
    if not apart_s:
        return "one look cannot tell whether they move on."
    if len(moved) == len(looks):
        return f"{within}, all of them moved on, so the job makes progress."
    return f"{within}, {f'only the stack of {_who(moved)}' if moved else 'no stack'} changed."


def world_text(world: WorldLook, style: Style) -> str:
    """Format the sentence, a stack for each position, and where calls are known from."""
    head = f"{style.paint(world.name, 'bold')} (process {world.launcher}, {format_count(len(world.ranks), 'rank')})"
    lines = [head, f"  {world.sentence}", ""]
    for group in _positions(world.ranks):
        busy = _who(one for one in group if one.is_busy) if any(one.is_busy for one in group) else ""
        lines.append(f"{_who(group)}: {group[0].where}{f'; {busy} used a CPU' if busy else ''}")
        lines += [style.paint(line, "dim") for line in group[0].stack.splitlines()]
    return "\n".join([*lines, "", f"calls: {world.calls}"])
