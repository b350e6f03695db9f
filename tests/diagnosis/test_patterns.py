"""A pattern of a scenario is searched as Python does, but not for ever."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from lab.diagnosis import expectations as patterns
from lab.diagnosis.expectations import Searches, TooLong, check_expectations
from lab.record.result import RankResult
from lab.spec.scenario import Expect
from tests.golden import golden

ENDLESS = r"^(\w+\s?)+$"
BAIT = "a" * 60 + "!"


@pytest.fixture
def quickly_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "LIMIT_S", 1)


@pytest.mark.parametrize(
    ("pattern", "match"),
    [
        ("plain", "plain"),
        (r"re\w+ (\d+)", "received 30"),
        ("^é+$", None),
        ("é{2}", "éé"),
        ("nothing.*", None),
        ("(?i)RECEIVED.?", "received "),
        (r"\A$|x", None),
    ],
)
def test_a_pattern_is_found_as_python_finds_it(tmp_path: Path, pattern: str, match: str | None) -> None:
    text = "plain\nreceived 30\néé!\n"
    (tmp_path / "log").write_text(text, encoding="utf-8")
    assert Searches().find(text, pattern) == match
    assert Searches().find_in_log(tmp_path / "log", pattern) == match


def test_a_pattern_that_goes_back_for_ever_is_given_up(tmp_path: Path, quickly_given_up: None) -> None:
    (tmp_path / "log").write_text(BAIT)
    with pytest.raises(TooLong, match=golden(1)):
        Searches().find_in_log(tmp_path / "log", ENDLESS)


def test_all_patterns_of_a_run_have_one_limit_together(tmp_path: Path, quickly_given_up: None) -> None:
    ranks = []
    for rank in range(6):
        log = tmp_path / f"log{rank}"
        log.write_text(BAIT)
        ranks.append(RankResult(rank=rank, exit_code=0, log_path=log))
    before = computed_by_children_s()

    found = check_expectations(Expect(logs=dict.fromkeys(range(6), ENDLESS)), ranks, {})

    assert computed_by_children_s() - before < 3
    assert not any(one.met for one in found if one.what == "log")
    got = [one.got for one in found if one.what == "log"]
    assert got[0] == golden(1)
    assert set(got[1:]) == {golden(2)}


def test_searches_that_are_quick_take_nothing_from_others() -> None:
    searches = Searches(0.1)
    assert [searches.find("x" * 100, "x+y|x") for _ in range(20)] == ["x"] * 20


@pytest.mark.parametrize(
    "pattern", ["(a|a)" * 40 + "b", pytest.param("(a|aa)" * 40 + "b", marks=pytest.mark.long)], ids=len
)
def test_a_pattern_that_only_has_alternatives_is_given_up_too(pattern: str, quickly_given_up: None) -> None:
    with pytest.raises(TooLong):
        Searches().find("a" * 60, pattern)


def computed_by_children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_a_log_that_is_not_there_is_said_as_before(tmp_path: Path) -> None:
    for pattern in ("plain", "wi.*ld"):
        with pytest.raises(FileNotFoundError):
            Searches().find_in_log(tmp_path / "missing", pattern)


def test_no_process_and_no_descriptor_stays(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("x\n")
    descriptors, children = descriptors_and_children()
    for _ in range(5):
        Searches().find_in_log(tmp_path / "log", "x+")
    assert descriptors_and_children()[0] == descriptors
    assert descriptors_and_children()[1] <= children


def descriptors_and_children() -> tuple[list[str], set[str]]:
    """Of this process, which may have some from other tests, such as a cluster that they share, and they may end."""
    return os.listdir("/proc/self/fd"), set(Path("/proc/thread-self/children").read_text().split())
