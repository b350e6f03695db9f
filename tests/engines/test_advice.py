"""A script that fails in a common way gets advice, in the verdict and in `lab explain`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lab import Result
from lab.diagnosis.explain import explain_run
from lab.features.advice.advice import find_advice
from lab.record.read import Record
from lab.record.result import Expectation, RankResult
from lab.report.style import Style
from lab.report.verdict import verdict_text


@pytest.mark.local_first
@pytest.mark.parametrize(
    ("how", "advice"),
    [
        ([], "-- --rank '{rank}' --world-size '{world_size}'`"),
        (["file"], "rank 0 wrote words.txt; nodes share only files below $LAB_SHARED"),
        (["other file"], ""),
        (["no rank"], "-- --rank '{rank}'` gives each rank its number"),
        (["nccl"], "--backend gloo` uses gloo, whatever the script names"),
        (["one gpu"], "`lab run ... --gpus 1 --split-gpus`"),
        (["gradient"], "the outputs of all_gather have no gradient"),
        (["check"], " --step 1` draws what each rank gave and got in all_reduce #1 at needs_advice.py:"),
    ],
)
def test_a_common_failure_gets_advice(run: Callable[..., Result], how: list[str], advice: str) -> None:
    result = run("needs_advice.py", *how)

    assert result.path is not None
    assert result.verdict == "failed"
    hints = [line for line in verdict_text(result, Style(colour=False)).splitlines() if line.startswith("  hint: ")]
    given = [one for one in explain_run(Record(path=result.path)).findings if one.kind == "advice"]
    assert [advice in hint for hint in hints] == [True] * len(given) == [True] * bool(advice)
    assert all(one.sentence.lower().startswith(hints[0][8:].lower()) for one in given)


@pytest.mark.local_first
@pytest.mark.parametrize("how", ["root", "peer"])
def test_a_call_with_a_rank_that_does_not_exist_fails_at_once(run: Callable[..., Result], how: str) -> None:
    result = run("needs_advice.py", how)

    assert result.verdict == "failed"
    assert "there is no rank 7: the ranks are 0 to 2" in result.reason


def test_a_list_with_one_value_per_rank_gets_advice_where_each_rank_notes_one() -> None:
    wrong = Expectation(what="note ok", rank=0, expected=[1, 2], got=1)
    result = Result(verdict="failed", ranks=(RankResult(rank=0), RankResult(rank=1)), expectations=(wrong,))

    assert ["ok: {0: ..., 1: ...}" in one for one in find_advice(result)] == [True]
    assert find_advice(replace(result, expectations=(replace(wrong, got=[1, 3]),))) == []
