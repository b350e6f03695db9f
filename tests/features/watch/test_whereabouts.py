"""Where ranks are while a run goes on, in one line."""

from __future__ import annotations

from lab.features.watch.now import CallNow, RankNow, whereabouts_text
from tests.golden import golden


def ranks(*told: tuple[str, str, float]) -> list[RankNow]:
    return [
        RankNow(rank=rank, node="node0", state="inside", activity=activity, location=location, since_s=since)
        for rank, (activity, location, since) in enumerate(told)
    ]


def test_ranks_at_the_same_place_are_told_together_with_the_longest_wait() -> None:
    last = CallNow(text="all_reduce #2", op="all_reduce", location="train.py:39", state="completed", took="1 ms")
    outside = RankNow(rank=6, node="node1", state="outside", activity="in no call", since_s=0.5, recent=(last,))
    found = [*ranks(*[("in all_reduce #3", "train.py:41", rank) for rank in range(6)]), outside]
    assert whereabouts_text(12.2, found, 200) == golden(1)


def test_what_does_not_fit_is_cut_off() -> None:
    found = ranks(*[("in recv", f"a.py:{rank}", 0.0) for rank in range(5)])
    text = whereabouts_text(3.0, found, 60)
    assert text == golden(1)
    assert whereabouts_text(3.0, found, 20) == "… 3 s  rank 0: in r…"


def test_ranks_without_recorded_calls_have_no_line() -> None:
    assert whereabouts_text(3.0, [RankNow(rank=0, node="node0", state="starting", activity="starting")], 60) == ""
