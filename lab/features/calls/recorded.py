"""What the ranks of a run called, as `result.calls` has it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from lab.diagnosis.evidence import Evidence, read_evidence
from lab.errors import RecordError
from lab.features.calls.file import SnapshotFile, SnapshotHome, beside, hold_against
from lab.features.calls.text import texts_of, write_calls
from lab.record.read import Record
from lab.record.result import Result


class RecordedCalls(Mapping[int, tuple[str, ...]]):
    """What the ranks of a run called: by rank, a line a call, in order. Shows itself as the text of a snapshot.

    Args:
        result: the run, whose record is read when it is first asked for.
    """

    home: SnapshotHome | None = None
    """That of all results, while a test runs."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def __getitem__(self, rank: int) -> tuple[str, ...]:
        return self._calls[rank]

    def __iter__(self) -> Iterator[int]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:

        return write_calls(self._calls).rstrip()

    def matches_snapshot(self, path: str | Path | None = None, *, update: bool | None = None) -> bool:
        """Hold them against a file; one that is missing is written, except in CI.

        Args:
            path: the file; None: beside the script of the run or, in a test, beside the test.
            update: True: write it anew; False: not even one that is missing.

        Returns:
            True.

        Raises:
            AssertionError: something was called otherwise; the message says what, in words.
            LabError: the run has no record.
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

    @cached_property
    def _evidence(self) -> Evidence:

        if self._result.path is None:
            raise RecordError("the run has no record, so nobody knows what its ranks called")
        return read_evidence(Record(path=self._result.path))

    @cached_property
    def _calls(self) -> Mapping[int, tuple[str, ...]]:

        return texts_of(self._evidence.trace)

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

    def forget() -> None:
        RecordedCalls.home = None

    return forget
