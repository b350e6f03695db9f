"""What two runs did differently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.cli.main import main
from lab.features.compare.compare import Comparison, compare_runs, diff_text, outcomes_changed
from lab.record.layout import PLAN, SCENARIO
from lab.record.read import Record
from lab.record.result import Culprit, RankResult, RecordedFinding, Result
from lab.report.style import Style
from lab.trace.read import read_trace
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit
PLAIN = Style(colour=False)


def trained(folder: Path, sizes: tuple[int, ...], *, world_size: int = 2, factor: float = 1.0) -> TraceMaker:
    """Three training steps that reduce buckets of so many floats, then a barrier."""
    made = TraceMaker(folder, world_size)
    for rank in range(world_size):
        names = [[f"w{i}", "float32", [size]] for i, size in enumerate(sizes)]
        made.line(rank, "ddp", 1, d=1, g="0", params=names, buckets=[[i] for i in range(len(sizes))], rebuilt=False)
    for step in range(3):
        for rank in range(world_size):
            begin = 10 + 20 * step
            made.mark(rank, "backward", begin, begin + 19)
            for number, size in enumerate(sizes):
                at = begin + 1 + 3 * number
                made.call(rank, "all_reduce", at, at + 2 * factor, [[0.0] * size], [[0.0] * size], red="SUM")
    for rank in range(world_size):
        made.call(rank, "barrier", 100, 101)
    return made


def compared(before: Record, after: Record) -> Comparison:
    return compare_runs(before, after, (read_trace(before), read_trace(after)))


def test_runs_that_did_the_same_are_told_in_one_sentence(tmp_path: Path) -> None:
    one, other = trained(tmp_path / "a", (8,)).record(), trained(tmp_path / "b", (8,), factor=3).record()
    found = compared(one, other)
    assert found.identical
    assert diff_text(found, PLAIN) == (golden(1))


def test_other_buckets_show_in_calls_and_counts(tmp_path: Path) -> None:
    found = compared(trained(tmp_path / "a", (8,)).record(), trained(tmp_path / "b", (6, 2)).record())
    assert not found.identical
    assert [one.ranks for one in found.sequence] == [(0, 1), (0, 1)]
    assert [one.text for one in found.sequence] == [golden(2), golden(3)]
    [reduced] = [one for one in found.operations if one.name == "all_reduce"]
    assert reduced.before is not None
    assert reduced.after is not None
    assert (reduced.before.count, reduced.after.count) == (3, 6)
    # 32 bytes over two ranks: each sends 32 three times, however the buckets are cut.
    assert reduced.before.bytes == reduced.after.bytes == 192
    text = diff_text(found, PLAIN)
    assert golden(1) in text


def test_a_slower_network_shows_in_times_and_settings_only(tmp_path: Path) -> None:
    made = [trained(tmp_path / name, (8,), factor=factor) for name, factor in (("fast", 1.0), ("slow", 2.0))]
    records = [one.record() for one in made]
    for record, rate in zip(records, ("1gbit", "10mbit"), strict=True):
        (record.path / SCENARIO).write_text(f"name: x\nlearn: {rate}\nnetwork: {{rate: {rate}, delay: 5ms}}\n")
    found = compared(*records)
    assert [(one.name, one.before, one.after) for one in found.settings] == [("network rate", "1gbit", "10mbit")]
    assert found.sequence == []
    text = diff_text(found, PLAIN)
    assert golden(1) in text
    assert golden(2) in text
    assert golden(3) in text


def test_runs_of_other_sizes_are_compared_for_one_rank(tmp_path: Path) -> None:
    found = compared(trained(tmp_path / "a", (12,)).record(), trained(tmp_path / "b", (12,), world_size=4).record())
    assert found.per_rank
    assert found.sequence == []
    [reduced] = [one for one in found.operations if one.name == "all_reduce"]
    assert reduced.before is not None
    assert reduced.after is not None
    # 48 bytes, three times: with two ranks each sends 48, with four 72 (2 * 3/4 of it).
    assert (reduced.before.bytes, reduced.after.bytes) == (144, 216)
    assert golden(1) in diff_text(found, PLAIN)


def test_what_only_one_rank_does_differently_names_the_rank(tmp_path: Path) -> None:
    after = trained(tmp_path / "b", (8,))
    after.call(1, "send", 110, 111, [[1.0]], peer=0, tag=0)
    found = compared(trained(tmp_path / "a", (8,)).record(), after.record())
    [change] = found.sequence
    assert (change.ranks, change.text) == ((1,), golden(1))
    assert change.text in diff_text(found, PLAIN)


def test_arguments_engine_and_script_are_settings(tmp_path: Path) -> None:
    records = [trained(tmp_path / name, (8,)).record() for name in "ab"]
    for record, argument, engine in zip(records, ("1", "2"), ("local", "docker"), strict=True):
        plan: dict[str, Any] = json.loads((record.path / PLAN).read_text())
        plan["engine"] = engine
        for worker in plan["workers"]:
            worker["argv"] = ["train.py", "--epochs", argument]
            worker["env"] = {"RANK": str(worker["rank"]), "LAB_SHARED": engine, "SEED": argument}
        (record.path / PLAN).write_text(json.dumps(plan))
        (record.path / "train.py").write_text(f"a\nb\n{argument}\n")
    settings = {one.name: (one.before, one.after) for one in compared(*records).settings}
    assert settings == {
        "engine": ("local", "docker"),
        "arguments": ("--epochs 1", "--epochs 2"),
        "env SEED": ("1", "2"),
        "script (-1 +1 lines)": ("train.py", "train.py"),
    }


def test_which_rank_was_first_is_no_change_if_every_rank_failed_alike() -> None:
    def failed(first: int, *alike: int, error: str = "raised NameError: x") -> Result:
        finding = RecordedFinding(kind="failed", facts={"alike": alike})
        ranks = tuple(RankResult(rank=rank, node=f"node{rank}") for rank in range(3))
        culprit, reason = Culprit(rank=first, error=error), f"rank {first} {error}"
        return Result(verdict="failed", reason=reason, culprit=culprit, findings=(finding,), ranks=ranks)

    assert outcomes_changed(failed(0, 1, 2), failed(1, 0, 2)) == []
    assert [one.name for one in outcomes_changed(failed(0, 1), failed(1, 0))] == ["cause"]
    assert [one.name for one in outcomes_changed(failed(0, 1, 2), failed(0, 1, 2, error="exited"))] == ["cause"]


def test_the_command_says_it_in_text_and_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / ".lab" / "runs"
    trained(runs / "one-x", (8,)).record()
    trained(runs / "two-y", (6, 2)).record()
    TraceMaker(runs / "three-z", 2)
    assert main(["diff", "one-x", "two-y", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["identical"], data["runs"], len(data["sequence"])) == (False, ["one-x", "two-y"], 2)
    assert main(["diff", "one-x", "one-x"]) == 0
    assert golden(1) in capsys.readouterr().out
    assert main(["diff", "one-x", "three-z"]) == 1
    assert golden(2) in capsys.readouterr().err
