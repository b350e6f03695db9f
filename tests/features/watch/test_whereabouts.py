"""Where ranks are while a run goes on, in one line."""

from __future__ import annotations

from lab.features.watch.tail import RankPosition, whereabouts_text
from tests.golden import golden


def places(*told: tuple[str, str, float]) -> list[RankPosition]:
    return [RankPosition(rank, what, source, since) for rank, (what, source, since) in enumerate(told)]


def test_ranks_at_the_same_place_are_told_together_with_the_longest_wait() -> None:
    found = places(*[("all_reduce", "train.py:41", 100.0 - rank) for rank in range(6)], ("", "train.py:39", 99.5))
    assert whereabouts_text(12.2, found, 100.0, 200) == (golden(1))


def test_what_does_not_fit_is_cut_off() -> None:
    found = places(*[("recv", f"a.py:{rank}", 100.0) for rank in range(5)])
    text = whereabouts_text(3.0, found, 100.0, 60)
    assert text == golden(1)
    assert whereabouts_text(3.0, found, 100.0, 20) == "… 3 s  rank 0: recv…"
