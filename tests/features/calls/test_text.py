"""What ranks called, as the text of a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.features.calls.snapshot import SnapshotDamaged, count_calls, read_calls, texts_of, write_calls
from lab.trace.read import read_trace
from tests.golden import golden
from tests.traces import TraceMaker

LINES = ["barrier", "all_reduce SUM float32[4]", "send int64[1] to 1 tag 7 in [0, 1]", "recv float32[] from any",
         'broadcast uint8 from 0 async bucket 2 module 3 in "a, b (c" during DDP()',
         "all_to_all_single float32[3] split [1,2]"]  # fmt: skip


def test_ranks_that_called_the_same_stand_together_and_what_repeats_stands_once() -> None:
    step = ("all_reduce SUM float32[4]", "barrier", "barrier")
    text = write_calls({0: step * 3, 1: step * 3, 2: step * 3, 4: (), 5: ("barrier",)}, "What?", "Why?")
    assert text == (golden(1))
    assert count_calls(read_calls(text, "x")) == "28 calls of 5 ranks"


@given(st.dictionaries(st.integers(0, 9), st.lists(st.sampled_from(LINES), max_size=40).map(tuple), min_size=1))
def test_what_is_written_is_read_again(calls: dict[int, tuple[str, ...]]) -> None:
    assert read_calls(write_calls(calls, "heading"), "x") == calls


def test_a_person_may_write_it_with_other_spaces_and_the_notation_of_scenarios() -> None:
    text = "ranks 0, 1:\n\n\t2 times:\n\t\tbarrier   x2  \n# a comment\n  send  to 1\n"
    assert read_calls(text, "x") == dict.fromkeys((0, 1), ("barrier",) * 4 + ("send to 1",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x:0: it has no calls; allowed: a call such as"),
        ("barrier\n", "x:1: found 'barrier'; allowed: a call such as"),
        ("rank 0:\nbarrier\n", "x:2: found 'barrier'; allowed: a call such as"),
        ("rank 0:\n  barier\n", "x:2: found 'barier', with the operation 'barier' (did you mean 'barrier'?)"),
        ("rank 0:\n  ...\n", "x:2: found '...'; allowed: a call such as"),
        ("rank 0:\n  send to {rank}\n", "x:2: found 'send to {rank}'; allowed"),
        ("rank 0:\n  barrier\nranks 0-2:\n  barrier\n", "x:3: found rank 0 again; allowed: each rank once"),
        ("ranks 3-1:\n  barrier\n", "x:1: found ranks 3-1; allowed: ranks from 0 to"),
        ("ranks 0-99999999:\n  barrier\n", "x:1: found ranks 0-99999999; allowed: ranks from 0 to"),
        ("rank 0:\n  9999 times:\n    9999 times:\n      barrier\n", "x:4: found more than 1000000 calls"),
    ],
)
def test_what_is_no_call_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(SnapshotDamaged) as refused:
        read_calls(text, "x")
    assert refused.value.message.startswith(message)


def test_what_differs_between_runs_is_not_in_it(tmp_path: Path) -> None:
    texts = []
    for run, (peer, length) in enumerate(((0, 5), (2, 900))):
        made = TraceMaker(tmp_path / str(run), 3)
        made.call(1, "recv", 1 + run, 2 + run, [], [[1.0 + run]], peer=-1, tag=0)
        made.line(1, "end", 3 + run, i=1, peer=peer)
        made.call(1, "all_gather", 4, 5 + run, [[run] * length], [[0]], dtype="uint8", via="all_gather_object")
        made.call(1, "broadcast", 5.2, 5.3, [[1]], dtype="int64", via="save", root=0)
        made.call(1, "broadcast", 5.4, 5.5, [[run] * length], dtype="uint8", via="save", root=0)
        made.call(1, "all_gather", 6, 7, [[run] * 3], [[0]], dtype="uint8", via="all_gather", at=f"train.py:{run}")
        texts.append(texts_of(read_trace(made.record()))[1])
    assert (
        texts[0]
        == texts[1]
        == (
            golden(1),
            "all_gather uint8",
            "broadcast int64[1] from 0",
            "broadcast uint8 from 0",
            "all_gather uint8[3]",
        )
    )


def test_handles_buckets_splits_and_phases_are_in_it(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    names = [["w0", "float32", [6]], ["w1", "float32", [2]]]
    made.line(0, "ddp", 1, d=1, g="0", params=names, buckets=[[0], [1]], rebuilt=False)
    made.mark(0, "backward", 2, 9)
    for at, size in ((3, 6), (5, 2)):
        made.call(0, "all_reduce", at, at + 1, [[0.0] * size], [[0.0] * size], red="SUM", **{"async": True})
    made.call(0, "all_to_all_single", 10, 11, [[0.0] * 3], [[0.0] * 3], split=[[2, 1], [1, 2]])
    made.call(0, "send", 12, 13, [[0.0]], peer=1, tag=0, via="isend")
    assert texts_of(read_trace(made.record()))[0] == (
        golden(1),
        golden(2),
        "all_to_all_single float32[3] split [1,2]",
        golden(3),
    )


def test_of_several_threads_the_calls_of_each_group_stand_together(tmp_path: Path) -> None:
    texts = []
    for run, order in enumerate(("abab", "bbaa")):
        made = TraceMaker(tmp_path / str(run), 2)
        made.group("1", [0, 1], desc="a")
        made.group("2", [0, 1], desc="b")
        made.line(0, "threads", 1)
        made.mark(0, "forward", 2 + run, 15)
        turns = dict.fromkeys("ab", 0)
        for place, name in enumerate(order):
            op = ("broadcast", "barrier")[turns[name]]
            turns[name] += 1
            made.call(0, op, 10 * place, 10 * place + 5, group="1" if name == "a" else "2")
        for tag in (order[0] == "a", order[0] != "a"):
            made.call(0, "send", 60 + tag + run, 70, [[1.0]], peer=1, tag=int(tag))
        texts.append(texts_of(read_trace(made.record()))[0])
    assert texts[0] == texts[1] == (
        "broadcast in a", "barrier in a", "broadcast in b", "barrier in b",
        "send float32[1] to 1", golden(1),
    )  # fmt: skip
