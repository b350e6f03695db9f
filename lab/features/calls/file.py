"""The file beside a scenario that says what its ranks call: read, written, and held against a run."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.diagnosis.evidence import Evidence
from lab.errors import LabError, UsageError
from lab.features.calls.change_words import tell_changes
from lab.features.calls.keys import SNAPSHOT, Stated, calls_of
from lab.features.calls.stated import NOT_RECORDED, check_calls
from lab.features.calls.text import (
    Calls,
    SnapshotDamaged,
    counted,
    read_calls,
    settled_calls,
    texts_of,
    write_calls,
)
from lab.plan.plan import Plan
from lab.record.result import Expectation
from lab.spec.expressions import RankVariables
from lab.spec.lessons import is_installed
from lab.spec.scenario import Scenario

SUFFIX = ".calls.txt"
_MOST_BYTES = 16 << 20
_MOST_TOLD = 50
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class SnapshotHome:
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


@dataclass(frozen=True, kw_only=True)
class SnapshotFile:
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
            descriptor = os.open(self.path, _READ)
            try:
                text = self._read(descriptor)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            why = "it is a link" if self.path.is_symlink() else error.strerror
            raise LabError(f"{self.name} cannot be read: {why}") from error
        return read_calls(text, self.name)

    def _read(self, descriptor: int) -> str:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MOST_BYTES:
            what = "it is no file" if not stat.S_ISREG(about.st_mode) else f"it has over {_MOST_BYTES >> 20} MiB"
            raise LabError(f"{self.name} cannot be read: {what}")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")

    def write(self, calls: Calls) -> None:
        """Write it, whole or not at all; what was there is replaced, not followed.

        Raises:
            LabError: it cannot be written.
        """
        if is_installed(self.path):
            whose = f"{self.name} is not written among the lessons of the installed lab"
            raise LabError(f"{whose}; `lab new --from` copies a lesson into a folder of yours")
        text = write_calls(calls, f"What the ranks of {self.of} call, in order.", f"{self.how} writes it anew.")
        try:
            if read_calls(text, self.name) != dict(calls):
                raise SnapshotDamaged("it could not be read again")
        except SnapshotDamaged as error:
            raise LabError(f"{self.name} is not written: what was called has no plain text ({error.message})") from None
        try:
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._write(folder, text)
            finally:
                os.close(folder)
        except OSError as error:
            raise LabError(f"{self.path} cannot be written: {error.strerror}") from error

    def _write(self, folder: int, text: str) -> None:
        new = f".{self.name}.{os.getpid()}.new"
        try:
            with open(os.open(new, _NEW, 0o666, dir_fd=folder), "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(new, self.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(new, dir_fd=folder)


def beside(file: Path, nnodes: int, nproc_per_node: int, how: str = "") -> SnapshotFile:
    """The snapshot of a scenario, or of a plain script, at one size."""
    return SnapshotFile(
        path=file.with_name(f"{file.stem}.{nnodes}x{nproc_per_node}{SUFFIX}"),
        of=f"{file.name} on {nnodes} node{'s' * (nnodes > 1)} x {nproc_per_node}",
        how=how or f"`lab run {file.name} --update`",
    )


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
        raise UsageError(
            f"{scenario.name} expects the calls of {file.name}, which is not there", f"{file.how} writes it"
        )
    stated = {**scenario.expect.extra, "calls": {rank: tuple(of) for rank, of in calls.items()}}
    return replace(scenario, expect=replace(scenario.expect, extra=stated))


def judge_calls(
    stated: Stated,
    plan: Plan,
    evidence: Evidence,
    variables: Mapping[int, RankVariables],
    update: bool | None,
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
    wrong = _not_comparable(evidence)
    if wrong:
        return [_unmet(file, f"({wrong})")]
    now = texts_of(evidence.trace)
    try:
        before = file.read()
        if before is None:
            return [_missing(file, now, update, fine)]
        found = _check(file.name, before, evidence, whole=fine)
        if update and fine and not all(one.met for one in found):
            file.write(now)
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            return [_written(file, f"written anew: {found[0].got}{more}")]
    except SnapshotDamaged as error:
        if not (update and fine):
            return [_unmet(file, f"({error.message})")]
        file.write(now)
        return [_written(file, f"written anew: {counted(now)}")]
    except LabError as error:
        return [_unmet(file, f"({error.message})")]
    return found


def _missing(file: SnapshotFile, now: Calls, update: bool | None, fine: bool) -> Expectation:
    if update is False or (update is None and in_ci()):
        why = "" if update is False else "; where CI is set, it is not written by itself"
        return _unmet(file, f"(there is no such file: {file.how} writes it{why})")
    if not fine:
        return _unmet(file, "(there is no such file, and none is made of a run that is not as expected)")
    file.write(now)
    return _written(file, f"written: {counted(now)}")


def in_ci() -> bool:
    """Whether this is a CI job, as every CI service says."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def _unmet(file: SnapshotFile, got: str) -> Expectation:
    return Expectation(what="snapshot", expected=file.name, got=got, met=False)


def _written(file: SnapshotFile, got: str) -> Expectation:
    return Expectation(what="snapshot", expected=file.name, got=got, met=True)


def _not_comparable(evidence: Evidence) -> str:
    """Why what ranks called cannot be held against a snapshot; empty where it can."""
    trace = evidence.trace
    if not trace.recorded:
        return NOT_RECORDED
    cut = next((rank for rank in trace.ranks.values() if rank.cut), None)
    return f"recording of rank {cut.rank} ended early: {cut.cut}" if cut is not None else ""


def _check(name: str, before: Calls, evidence: Evidence, *, whole: bool) -> list[Expectation]:
    """Whether the ranks called what a snapshot has: one expectation for all that they did otherwise in the same way.

    Of a run that is not `whole`, nothing is missing after the last call of a rank that did not come to its end.
    """
    calls, now = settled_calls(evidence.trace), texts_of(evidence.trace)
    ended = {rank: whole or facts.left for rank, facts in evidence.ranks.items()}
    told = tell_changes(before, now, lambda rank, i: calls[rank][i].source, than="the snapshot", ended=ended)
    if told:
        found = [
            Expectation(
                what="snapshot",
                rank=one.ranks[0] if len(one.ranks) == 1 else None,
                expected=name,
                got=one.text,
                met=False,
            )
            for one in told[:_MOST_TOLD]
        ]
        if len(told) > _MOST_TOLD:
            more = f"and {len(told) - _MOST_TOLD} more differences"
            found.append(Expectation(what="snapshot", expected=name, got=more, met=False))
        return found
    left = all(ended.get(rank, whole) for rank in before)
    got = "the same" if left else "the same, as far as the ranks came"
    return [Expectation(what="snapshot", expected=name, got=f"{got}: {counted(now)}", met=left)]
