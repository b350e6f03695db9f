"""The ends of long traces: matched as if everything had been read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.record.layout import TRACE, rank_trace
from lab.record.read import Record
from lab.trace.model import Trace
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.traces import TraceMaker

_ROUNDS = 400


class LongTrace(TraceMaker):
    """Traces of many calls, with lines as the recorders format them."""

    def message(self, rank: int, op: str, peer: int, at_ms: float, *, tag: int = 0, ended: bool = True) -> None:
        """A message with its fields in the order of the recorders."""
        index = self.indices[rank] = self.indices[rank] + 1
        self.line(rank, "begin", at_ms, i=index, op=op, g="0", peer=peer, tag=tag, **{"in": [], "ib": 0}, at="a.py:7")
        if ended:
            self.line(rank, "end", at_ms + 0.5, i=index)

    def collective(self, rank: int, op: str, at_ms: float, *, group: str = "0", ended: bool = True) -> None:
        """A collective without tensors."""
        index, seq = self.indices[rank] + 1, self.seqs.get((rank, group), 0) + 1
        self.indices[rank], self.seqs[rank, group] = index, seq
        self.line(rank, "begin", at_ms, i=index, op=op, g=group, seq=seq, **{"in": [], "ib": 0}, at=f"a.py:{len(op)}")
        if ended:
            self.line(rank, "end", at_ms + 0.5, i=index)

    def mark(self, rank: int, name: str, at_ms: float, **fields: Any) -> None:
        """A phase that begins and ends."""
        self.line(rank, "mark", at_ms, n=name, e=0, at="a.py:3", **fields)
        self.line(rank, "mark", at_ms + 0.1, n=name, e=1)

    def save(self) -> Record:
        """Write the traces, without spaces."""
        (self.path / TRACE).mkdir()
        for rank, lines in self.lines.items():
            texts = (json.dumps(line, separators=(",", ":")) for line in lines)
            (self.path / TRACE / rank_trace(rank)).write_text("".join(f"{text}\n" for text in texts))
        return Record(path=self.path)


@pytest.fixture
def long(tmp_path: Path) -> LongTrace:
    return LongTrace(tmp_path / "run", 3)


def unfinished(trace: Trace) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """The steps that did not complete: title, ranks that entered, and missing ranks."""
    return [(one.title, tuple(one.calls), one.missing) for one in match_steps(trace) if one.state != "completed"]


def read_both(record: Record, most_bytes: int = 40_000) -> Sequence[Trace]:
    """The whole trace, and its end."""
    return read_trace(record), read_trace(record, most_bytes)


def test_the_mismatch_at_the_end_of_a_long_run_is_in_the_tail(long: LongTrace) -> None:
    for n in range(_ROUNDS):
        for rank in range(3):
            long.collective(rank, "all_reduce", n + rank / 10)
    for rank, op in enumerate(("all_reduce", "broadcast", "all_reduce")):
        long.collective(rank, op, _ROUNDS, ended=False)
    whole, tail = read_both(long.save())
    assert tail.is_tail
    assert not whole.is_tail
    (last,) = (step for step in match_steps(tail) if step.state != "completed")
    assert last.seq == _ROUNDS + 1
    assert {rank: call.op for rank, call in last.calls.items()}[1] == "broadcast"
    firsts = {one.calls[0].seq for one in tail.ranks.values()}
    assert len(firsts) == 1
    assert all(one.skipped == one.calls[0].index - 1 > 0 for one in tail.ranks.values())
    assert all(one.skipped + len(one.calls) == _ROUNDS + 1 for one in tail.ranks.values())


def test_a_rank_whose_lines_are_longer_does_not_make_others_look_absent(long: LongTrace) -> None:
    for n in range(_ROUNDS):
        for rank in range(3):
            if rank == 2:
                long.mark(rank, "forward", n)
                long.mark(rank, "step", n)
            long.collective(rank, "all_reduce", n + rank / 10)
    whole, tail = read_both(long.save())
    assert unfinished(tail) == unfinished(whole) == []
    assert tail.ranks[2].skipped_steps + sum(one.name == "step" for one in tail.ranks[2].phases) == _ROUNDS


def test_messages_in_flight_keep_their_pairs(long: LongTrace) -> None:
    for n in range(_ROUNDS):
        long.message(0, "send", 1, n)
        long.mark(0, "forward", n)  # so that the tails begin at different messages
        if n >= 3:
            long.message(1, "recv", 0, n)
    for _ in range(3):
        long.message(1, "recv", 0, _ROUNDS)
    long.message(1, "recv", 0, _ROUNDS + 1, ended=False)
    whole, tail = read_both(long.save())
    assert unfinished(tail) == unfinished(whole) == [("send 0 → 1", (1,), (0,))]


def test_messages_from_any_rank_are_not_paired(long: LongTrace) -> None:
    for n in range(_ROUNDS):
        for rank in (1, 2):
            long.message(rank, "send", 0, n)
            index = long.indices[0] = long.indices[0] + 1
            long.line(0, "begin", n, i=index, op="recv", g="0", peer=-1, tag=0, **{"in": [], "ib": 0}, at="a.py:7")
            long.line(0, "end", n + 0.5, i=index, peer=rank)
    _, tail = read_both(long.save())
    assert unfinished(tail) == []


def test_a_group_that_a_rank_used_only_before_its_tail_counts(long: LongTrace) -> None:
    long.group("1", [0, 1])
    for n in range(_ROUNDS):
        for rank in range(3):
            long.collective(rank, "all_reduce", n)
    for rank in (0, 1):
        long.collective(rank, "barrier", _ROUNDS, group="1")
    long.collective(0, "barrier", _ROUNDS + 1, group="1", ended=False)
    for n in range(_ROUNDS):  # of the script's other work, which fills the tail of rank 1
        long.mark(1, "forward", _ROUNDS + n)
    whole, tail = read_both(long.save())
    assert not any(call.group == "1" for call in tail.ranks[1].calls)
    assert unfinished(tail) == unfinished(whole) == [("barrier #2 in [0, 1]", (0,), (1,))]


def test_groups_made_in_the_middle_are_known(long: LongTrace) -> None:
    for n in range(_ROUNDS):
        for rank in range(3):
            if n == _ROUNDS // 2:
                long.line(rank, "mark", n, n="new_group", e=0, at="a.py:99", g="1", ranks=[0, 1, 2])
                long.line(rank, "group", n, g="1", ranks=[0, 1, 2], backend="gloo", desc="undefined")
                long.line(rank, "mark", n, n="new_group", e=1)
            long.collective(rank, "all_reduce", n, group="1" if n > _ROUNDS // 2 else "0")
    whole, tail = read_both(long.save())
    assert tail.groups == whole.groups
    assert tail.groups["1"].source == "a.py:99"
    assert unfinished(tail) == []
