"""Scripts that attack the agent, the record or the terminal harm nobody: their run ends, and so does the next."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.cli.main import main
from lab.diagnosis.explain import explain_run
from lab.record.read import Record
from lab.run.options import RunOptions
from lab.trace.read import read_trace
from tests.engines.conftest import scenario_of

Run = Callable[..., Result]
pytestmark = pytest.mark.usefixtures("usable", "nothing_left")

ACTING = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]|\x1b(?!\[[0-9;:]*m)")


@pytest.mark.local_first
@pytest.mark.parametrize(
    "what",
    [["statements"], ["traces"], ["folders", 1200], pytest.param(["folders", 3000], marks=pytest.mark.long)],
    ids=str,
)
def test_whatever_a_script_tells_its_agent_or_leaves_the_run_has_its_verdict(run: Run, what: list[object]) -> None:
    result = run("hostile.py", *what, nodes=2)

    expected = "failed" if what == ["statements"] else "passed"  # it reports an error of its own, and then ends with 0
    assert result.verdict == expected, result.reason
    assert [rank.notes["honest"] for rank in result.ranks] == [1, 1]
    assert result.path is not None
    record = Record(path=result.path)
    assert read_trace(record).world_size == 2
    assert explain_run(record).verdict == expected


@pytest.mark.local_first
@pytest.mark.parametrize("count", [50, pytest.param(600, marks=pytest.mark.long)])
def test_a_run_ends_when_no_process_of_it_is_left(run: Run, count: int) -> None:
    assert run("hostile.py", "processes", count, nodes=1).passed


@pytest.mark.local_first
def test_no_view_lets_escape_sequences_reach_a_terminal(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = run("hostile.py", "escapes", nodes=2)
    assert result.path is not None
    name, folder = str(result.path.name), str(Path(result.path).parent)
    capsys.readouterr()

    for words in (
        ["show", name],
        ["logs", name],
        ["logs", name, "--rank", "0"],
        ["explain", name],
        ["runs"],
    ):
        assert main([*words, "--runs", folder]) == 0
        said = capsys.readouterr().out
        assert ACTING.search(said) is None, (words, said)
        assert "\\x" in said, words


@pytest.mark.local_first
def test_in_a_batch_every_honest_script_has_its_verdict_whatever_the_others_do(
    cluster: Cluster, tmp_path: Path
) -> None:
    hostile = [["statements"], ["traces"], ["folders", "100"], ["processes", "20"], ["escapes"]]
    scenarios = [
        scenario for what in hostile for scenario in (scenario_of("hostile.py", *what), scenario_of("collectives.py"))
    ]
    outcomes = cluster.run_all(scenarios, options=RunOptions(nodes=2, runs=tmp_path / "runs"))

    verdicts = [outcome.verdict for outcome in outcomes if isinstance(outcome, Result)]
    assert verdicts == ["failed", *["passed"] * 7, "failed", "passed"]
