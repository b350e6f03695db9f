"""What a scenario expects is compared with what came out, and the verdict says what differs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from lab import LabError, Result
from lab.spec.load import load_scenario
from lab.spec.scenario import Expect
from tests.golden import golden

pytestmark = pytest.mark.local_first  # what came out is judged on this side of the engine
Run = Callable[..., Result]


def test_notes_that_are_as_expected_pass(run: Run) -> None:
    expect = Expect(
        notes={
            "scattered": ["10.0 * rank"],
            "total": ["world_size * (world_size + 1) / 2"],
            "broadcast": {0: [2.0, 2.0, 2.0], 2: [2.0] * 3},
        }
    )

    result = run("collectives.py", expect=expect)

    assert result.passed, result.reason
    assert all(expectation.met for expectation in result.expectations)
    assert len(result.expectations) == 3 + 3 + 3 + 2


def test_a_note_that_differs_fails_the_run_and_names_rank_note_expected_and_got(run: Run) -> None:
    result = run("collectives.py", expect=Expect(notes={"scattered": {0: [0.0], 1: [11.0]}}))

    assert (result.verdict, result.exit_code) == ("failed", 1)
    assert result.reason == golden(1)
    assert result.culprit is None
    assert [rank.exit_code for rank in result.ranks] == [0, 0, 0]


def test_a_note_that_nobody_made_is_named_with_the_one_that_was_meant(run: Run) -> None:
    result = run("collectives.py", expect=Expect(notes={"totals": [6]}))

    assert result.verdict == "failed"
    assert result.reason.startswith(golden(1))
    assert golden(2) in result.reason
    assert result.reason.endswith("(and 2 more)")


def test_a_log_that_has_what_is_expected_passes_and_one_that_has_not_fails(run: Run) -> None:
    found = run("output.py", "lines", 100, expect=Expect(logs={0: r"^0+99 x+$", 2: "000000001 x"}))
    missing = run("output.py", "lines", 100, expect=Expect(logs={1: "no such thing"}))

    assert found.passed, found.reason
    assert missing.reason == golden(1)


def test_a_check_in_the_folder_of_the_script_sees_all_ranks_and_passes(run: Run) -> None:
    result = run("collectives.py", expect=Expect(check="checks.py:everybody_has_the_total"))

    assert result.passed, result.reason


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raises", "ValueError: this is never right"),
        ("asserts", "AssertionError: 3 ranks, not 4"),
        ("returns_false", "AssertionError: returns_false returned False"),
        ("is_missing", "AttributeError: checks.py has no function 'is_missing'"),
        ("exits", "SystemExit: 3"),
        ("dies", "killed by SIGSEGV"),
    ],
)
def test_a_check_that_does_not_pass_fails_the_run_and_says_why(run: Run, function: str, said: str) -> None:
    result = run("collectives.py", expect=Expect(check=f"checks.py:{function}"))

    assert result.verdict == "failed"
    assert result.reason == golden(1, function, said)


def test_a_check_can_print_and_its_output_is_in_the_record(run: Run) -> None:
    result = run("collectives.py", expect=Expect(check="checks.py:prints"))

    assert result.passed, result.reason
    assert result.path is not None
    assert (result.path / "logs" / "check.log").read_text() == "looked at 3 ranks\n"


def test_a_check_runs_in_node_0_without_privileges(run: Run) -> None:
    result = run("collectives.py", expect=Expect(check="checks.py:has_no_privileges"))

    assert result.passed, result.reason


def test_a_check_is_not_asked_about_a_run_that_failed(run: Run) -> None:
    result = run("fail.py", "raises", 1, expect=Expect(check="checks.py:raises"))

    assert result.culprit is not None
    assert result.culprit.rank == 1
    assert golden(1) not in result.reason


def test_a_failure_that_was_expected_passes(run: Run) -> None:
    expect = Expect(verdict="failed", culprit=1, reason="the data is bad at fail.py")

    result = run("fail.py", "raises", 1, expect=expect)

    assert (result.verdict, result.exit_code) == ("passed", 0)
    assert result.reason.startswith(golden(1))


def test_a_hang_that_was_expected_passes(hang: Run) -> None:
    result = hang("hang.py", "rank_1_never_comes", expect=Expect(verdict="hung", culprit=1))

    assert (result.verdict, result.exit_code) == ("passed", 0)
    assert re.match(golden(1), result.reason)


def test_the_exit_code_of_an_expected_failure_can_be_expected_too(run: Run) -> None:
    right = run("fail.py", "exits_3", 1, expect=Expect(verdict="failed", culprit=1, exit={1: 3}))
    wrong = run("fail.py", "exits_3", 1, expect=Expect(verdict="failed", culprit=1, exit={1: 4}))

    assert right.passed, right.reason
    assert wrong.reason == golden(1)


def test_a_rank_that_leaves_early_with_the_expected_code_is_to_blame_for_what_follows(run: Run) -> None:
    result = run("fail.py", "exits_3", 1, expect=Expect(exit={1: 3}))

    assert result.culprit is not None
    assert result.culprit.rank == 1, result.reason
    assert golden(1) in result.reason


@pytest.mark.parametrize(
    ("expect", "differs"),
    [
        (Expect(verdict="failed", culprit=2), "culprit: expected 2, got 1"),
        (Expect(verdict="hung"), "verdict: expected 'hung', got 'failed'"),
        (Expect(verdict="failed", reason="out of memory"), "reason: expected '/out of memory/', got 'rank 1 (node1) "),
    ],
)
def test_a_run_that_fails_in_another_way_than_expected_does_not_pass(run: Run, expect: Expect, differs: str) -> None:
    result = run("fail.py", "raises", 1, expect=expect)

    assert result.verdict == "failed"
    assert differs in result.reason


def test_a_run_that_passes_although_a_failure_was_expected_does_not_pass(run: Run) -> None:
    result = run("collectives.py", expect=Expect(verdict="failed"))

    assert result.verdict == "failed"
    assert result.reason == golden(1)


def test_exit_codes_that_were_expected_pass_and_end_nothing(run: Run) -> None:
    result = run("manners.py", "exits_with", 3, expect=Expect(exit={0: 3, 1: 3, 2: 3}))

    assert result.passed, result.reason
    assert [rank.exit_code for rank in result.ranks] == [3, 3, 3]


def test_a_signal_can_be_expected_as_a_negative_exit_code(run: Run) -> None:
    result = run("output.py", "killed_in_mid_line", nodes=1, expect=Expect(exit={0: -9}))

    assert result.passed, result.reason


def test_an_exit_code_that_was_not_expected_is_named_with_the_one_that_was(run: Run) -> None:
    result = run("manners.py", "exits_with", 3, nodes=1, expect=Expect(exit={0: 4}))

    assert result.verdict == "failed"
    assert golden(1) in result.reason


def test_an_expectation_of_a_rank_that_the_run_has_not_is_refused(run: Run) -> None:
    with pytest.raises(LabError, match=golden(1)):
        run("collectives.py", expect=Expect(exit={3: 0}))


def test_a_scenario_file_says_all_this_in_yaml(run: Run, cluster: object, tmp_path: object) -> None:
    from pathlib import Path

    scripts = Path(__file__).parent / "scripts"
    scenario = load_scenario(scripts / "everything.yaml")
    assert scenario == replace(scenario, nodes=3)

    result = cluster.run(scenario, runs=tmp_path / "runs")  # type: ignore[attr-defined, operator]

    assert result.passed, result.reason
    assert len(result.ranks) == 6


@pytest.mark.trains
def test_replicas_that_a_hand_written_training_lets_drift_fail_the_run(run: Run) -> None:
    same = run("replicas.py", "same", expect=Expect(extra={"replicas": "equal"}))
    apart = run("replicas.py", "apart", expect=Expect(extra={"replicas": "equal"}))

    assert same.passed, same.reason
    assert apart.verdict == "failed"
    assert golden(1) in apart.reason
    assert apart.reason.endswith("on rank 1'")
