"""A run that does not end is stopped at its timeout, with who was where and who kept the others waiting."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Result
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.explain import explain_run
from lab.diagnosis.facts import read_facts
from lab.diagnosis.judge import judge_evidence
from lab.record.read import Record
from lab.report.style import Style
from lab.report.verdict import verdict_text
from tests.golden import golden

pytestmark = [pytest.mark.usefixtures("usable_for_the_next"), pytest.mark.half]
Run = Callable[..., Result]


@pytest.mark.local_first
def test_a_run_of_which_every_rank_sleeps_is_hung_and_says_where(hang: Run) -> None:
    result = hang("hang.py", "everybody_sleeps")

    assert (result.verdict, result.exit_code) == ("hung", 4)
    assert re.match(golden(1), result.reason)
    assert "time.sleep(3600)" in result.reason
    for rank in result.ranks:
        assert (rank.stopped, rank.exit_code) == (True, None)
        assert "in everybody_sleeps" in rank.stack
        assert "labnode" not in rank.stack


@pytest.mark.local_first
@pytest.mark.parametrize(
    ("way", "line"),
    [
        ("rank_1_never_comes", "time.sleep(3600)"),
        ("rank_1_waits_for_a_lock", "lock.acquire()"),
    ],
)
def test_the_rank_that_never_comes_to_the_collective_is_the_culprit(hang: Run, way: str, line: str) -> None:
    result = hang("hang.py", way)

    assert result.verdict == "hung"
    assert result.culprit is not None
    assert (result.culprit.rank, result.culprit.node) == (1, "node1")
    assert golden(1) in result.culprit.error
    assert golden(2) in result.reason
    assert f"({line})" in result.reason
    assert golden(3) in result.reason
    assert f"in {way}" in result.culprit.traceback


@pytest.mark.local_first
@pytest.mark.parametrize(
    ("way", "by"), [("rank_1_computes_for_ever", "computing"), ("rank_1_prints_its_results", "printing")]
)
def test_a_rank_at_work_needs_more_time(hang: Run, way: str, by: str) -> None:
    result = hang("hang.py", way)

    assert (result.verdict, result.exit_code, result.culprit) == ("timeout", 4, None)
    [found] = result.findings
    assert (found["kind"], found["facts"]["by"], found["ranks"]) == ("out_of_time", [by], [])
    assert re.search(rf"rank 1 was still {by} at hang\.py:\d+ .*, and ranks 0 and 2 waited for it$", result.reason)
    assert "--timeout" in verdict_text(result, Style(colour=False))


@pytest.mark.local_first
def test_a_run_that_stands_still_ends_at_the_limit_for_that(run: Run) -> None:
    result = run("hang.py", "rank_1_never_comes", timeout_s=100.0, stall_s=1.0)

    assert (result.verdict, result.duration_s < 100.0) == ("hung", True)
    assert result.culprit is not None
    assert result.culprit.rank == 1
    assert re.match(golden(1), result.reason)


@pytest.mark.sample(1)  # one rule for all
@pytest.mark.local_first
@pytest.mark.parametrize("way", ["rank_1_computes_in_a_thread", "rank_1_prints_its_results", "everybody_sleeps"])
def test_a_run_that_may_still_go_on_has_its_whole_time(run: Run, way: str) -> None:
    result = run("hang.py", way, timeout_s=6.0, stall_s=1.0)

    assert result.duration_s >= 6.0
    assert golden(1) not in result.reason


@pytest.mark.local_first
def test_the_end_of_a_long_run_names_both_lines(hang: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.diagnosis.evidence._MOST_BYTES", 1 << 20)
    result = hang("hang.py", "rank_1_broadcasts_after_many_calls", timeout_s=12.0)

    assert result.path is not None
    assert result.culprit is not None
    size = sum(file.stat().st_size for file in (result.path / "trace").iterdir())
    assert size > 2 << 20
    judgement = judge_evidence(Evidence(facts=read_facts(record := Record(path=result.path)), record=record))
    assert (result.verdict, result.culprit.rank, judgement.reason) == ("hung", 1, result.reason)
    [found] = result.findings
    assert (found["kind"], found["ranks"], len(found["lines"])) == ("mismatch", [1], 2)
    assert all(line in result.reason for line in found["lines"])
    [whole] = [one for one in explain_run(record).findings if one.kind == "mismatch"]
    assert whole.sentence.startswith("Rank 1 called broadcast")
    assert found["facts"]["number"] == whole.to_json()["facts"]["number"]


@pytest.mark.local_first
def test_a_line_of_a_module_is_shown_at_the_end_and_from_the_record(hang: Run, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("import time\n\n\ndef rest():\n    time.sleep(3600)\n")
    main = tmp_path / "main.py"
    main.write_text('import time\nfrom lab import note\nfrom work import rest\nnote("ready_at", time.time())\nrest()\n')
    result = hang(main, nodes=1)  # every run is judged again from its record

    assert golden(1) in result.reason
    assert result.path is not None
    assert (result.path / "work.py").exists()


@pytest.mark.local_first
def test_a_rank_that_is_done_and_does_not_end_is_told_as_that(hang: Run, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import threading, time\n"
        "from lab import note\n"
        "def poll():\n"
        "    while True:\n"
        "        time.sleep(1)\n"
        "threading.Thread(target=poll).start()\n"
        'note("ready_at", time.time())\n'
    )
    result = hang(tmp_path / "main.py", nodes=1)

    assert golden(1) in result.reason


@pytest.mark.local_first
def test_a_rank_in_another_collective_than_the_others_is_the_culprit(hang: Run) -> None:
    result = hang("hang.py", "rank_2_is_in_another_collective")

    assert result.verdict == "hung"
    assert result.culprit is not None
    assert result.culprit.rank == 2, result.reason
    assert golden(1) in result.reason


@pytest.mark.local_first
def test_a_message_that_nobody_sends_accuses_nobody_and_names_both_lines(hang: Run) -> None:
    result = hang("hang.py", "rank_0_receives_what_nobody_sends")

    assert result.verdict == "hung"
    assert result.culprit is None  # rank 1 may have left its send out
    assert golden(1) in result.reason
    assert golden(2) in result.reason


@pytest.mark.local_first
def test_a_deadlock_of_all_ranks_at_one_place_has_no_culprit(hang: Run) -> None:
    result = hang("hang.py", "nobody_sends")

    assert result.verdict == "hung"
    assert result.culprit is None
    assert golden(1) in result.reason


@pytest.mark.long
def test_a_hang_of_a_cold_run_is_explained_too(hang: Run) -> None:
    result = hang("hang.py", "rank_1_never_comes", timeout_s=8.0, cold=True)

    assert result.verdict == "hung"
    assert result.culprit is not None
    assert result.culprit.rank == 1
    assert golden(1) in result.reason


@pytest.mark.local_first
def test_several_ranks_of_a_node_are_told_apart(hang: Run) -> None:
    result = hang("hang.py", "rank_1_never_comes", nodes=2, nproc_per_node=2)

    assert result.culprit is not None
    assert (result.culprit.rank, result.culprit.node) == (1, "node0")
    assert golden(1) in result.reason


@pytest.mark.local_first
def test_the_stacks_do_not_appear_in_what_the_ranks_printed(hang: Run) -> None:
    result = hang("hang.py", "everybody_sleeps")

    assert [rank.log for rank in result.ranks] == ["", "", ""]


STORE = "tcp://{master_addr}:{master_port}"


@pytest.mark.local_first
@pytest.mark.parametrize(
    ("words", "how"),
    [
        (["--rank", "{rank}"], "unanswered"),
        (["--rank", "0", "--address", STORE], "same_rank"),
        (["--rank", "{rank}", "--address", STORE, "--world_size", "4"], "missing"),
    ],
)
def test_ranks_that_cannot_meet_are_not_waited_for(run: Run, words: list[str], how: str) -> None:
    result = run("meet_in_vain.py", *words, timeout_s=300.0)

    assert (result.verdict, result.findings[0]["facts"]["how"]) == ("hung", how)
    assert "the run did not end within 5m" not in result.reason  # which is what the time limit would say


@pytest.mark.local_first
def test_the_script_of_a_tutorial_runs_with_the_values_of_each_rank(run: Run) -> None:
    result = run("meet_in_vain.py", "--rank", "{rank}", "--address", STORE)

    assert result.passed, result.reason
    assert [rank.log.split()[-1] for rank in result.ranks] == ["0", "10", "20"]


@pytest.mark.local_first
@pytest.mark.parametrize("trace", [True, False])
def test_an_address_of_elsewhere_becomes_the_runs_own_on_request(run: Run, trace: bool) -> None:
    result = run("meet_in_vain.py", "--rank", "{rank}", rewrite_address=True, trace=trace)

    assert result.passed, result.reason
    assert [rank.log.split()[-1] for rank in result.ranks] == ["0", "10", "20"]
    assert result.path is not None
    (finding,) = [one for one in explain_run(Record(path=result.path)).findings if one.kind == "address"]
    assert "tcp://172.31.255.2:8991 at meet_in_vain.py:" in finding.sentence
    assert finding.others == (0, 1, 2)


@pytest.mark.local_first
def test_an_address_that_a_script_sets_itself_is_rewritten_too(run: Run) -> None:
    result = run("own_address.py", rewrite_address=True)

    assert result.passed, result.reason
    assert [rank.log.split() for rank in result.ranks] == [["3", "3"]] * 3


@pytest.mark.local_first
def test_ranks_that_still_progress_at_the_time_limit_have_not_hung(run: Run) -> None:
    result = run("hang.py", "nobody", timeout_s=6.0)

    assert (result.verdict, result.exit_code, result.culprit) == ("timeout", 4, None)
    facts = result.findings[0]["facts"]
    assert (facts["what"], facts["count"] > 10, 1 < facts["per_s"] < 60) == ("call", True, True)
