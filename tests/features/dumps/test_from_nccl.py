"""Dumps that NCCL's watchdog wrote: torch 2.11, NCCL 2.28, 3 or 4 ranks on one H100; only paths are replaced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.cli.main import main
from lab.diagnosis.explain import explain_run
from lab.features.dumps.dump import Dumps
from lab.features.dumps.record import import_dumps

pytestmark = pytest.mark.half

FOLDER = Path(__file__).parent / "from_nccl"
CULPRITS = {
    "another_operation": 1,
    "message_never_sent": 1,
    "skipped_all_reduce": 1,
    "skipped_in_its_group": 3,
    "stopped_early": 2,
}


@pytest.mark.unit
@pytest.mark.parametrize("job", CULPRITS)
def test_the_rank_that_left_the_common_order_is_named(job: str, tmp_path: Path) -> None:
    record = import_dumps(Dumps(FOLDER / f"{job}.tar.gz"), "job", tmp_path)
    result = record.result()
    assert (result.verdict, result.culprit and result.culprit.rank) == ("hung", CULPRITS[job])
    assert explain_run(record).problems == ()


@pytest.mark.sample(2)  # each goes the whole way from a dump to a run
@pytest.mark.torch
@pytest.mark.timeout(300)
@pytest.mark.parametrize("job", CULPRITS)
def test_its_scenario_hangs_in_the_same_calls(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code = main(["import", "fr", "--scenario", "hang", str(FOLDER / f"{job}.tar.gz"), "--json"])
    answer = json.loads(capsys.readouterr().out)["reproduction"]
    assert (code, answer["differences"]) == (0, [])
