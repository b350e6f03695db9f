"""A rank that fails ends the run, is named as the culprit with its reason, and leaves the cluster usable."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from lab import Cluster, Result
from tests.golden import golden

pytestmark = [pytest.mark.usefixtures("usable_for_the_next"), pytest.mark.half]
Run = Callable[..., Result]

RAISED = "raised TrainingError: the data is bad at fail.py:"
WAYS = {
    "exits_3": "exited with code 3 at fail.py:",
    "exits_with_os_exit_3": "exited with code 3",
    "raises": RAISED,
    "raises_from_another": "raised TrainingError: wrapped at fail.py:",
    "raises_while_a_signal_comes": "Told: the data is bad at fail.py:",
    "raises_in_two_lines": "raised TrainingError: first line … second line at fail.py:",
    "raises_a_syntax_error": "raised SyntaxError: invalid syntax (generated.py, line 1) at fail.py:",
    "raises_out_of_memory": "raised RuntimeError: ",
    "raises_while_a_child_holds_its_output": RAISED,
    "recurses": "raised RecursionError: maximum recursion depth exceeded",
    "segfaults": "was killed by SIGSEGV at fail.py:",
    "aborts": "was killed by SIGABRT at fail.py:",
    "kills_itself": "was killed by SIGKILL",
    "divides_by_zero_in_c": "was killed by SIGFPE at fail.py:",
    "interrupts_itself": "was killed by SIGINT",
    "exits_with_text": "exited with code 1 at fail.py:",
    "raises_connection_error": "raised ConnectionRefusedError: [Errno 111] Connection refused at fail.py:",
    "is_ended_by_a_thread": "exited with code 7",
    "leaves_the_group_then_raises": "raised TrainingError: the real reason at fail.py:",
    "leaves_the_group_then_raises_much_later": "raised TrainingError: the real reason at fail.py:",
    "leaves_the_group_for_good": "destroyed the default group at fail.py:",
    "exits_early": "exited early, with code 0",
    "exits_early_with_os_exit": "exited early, with code 0",
}
"""Way of `fail.py` -> words in the reason."""
LIKE_OTHERS = {
    "raises_in_two_lines", "raises_out_of_memory", "raises_connection_error", "exits_with_os_exit_3",
    "exits_early_with_os_exit", "leaves_the_group_then_raises", "interrupts_itself", "aborts",
}  # fmt: skip
"""Ways that the kernel and the lab report as they do another one: in the long run only."""


@pytest.mark.local_first
@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=pytest.mark.long if way in LIKE_OTHERS else ()) for way in WAYS]
)
def test_the_rank_that_failed_first_is_the_culprit_and_the_reason_says_how(run: Run, way: str) -> None:
    result = run("fail.py", way, 1)

    assert (result.verdict, result.exit_code) == ("failed", 1)
    assert result.culprit is not None
    assert (result.culprit.rank, result.culprit.node) == (1, "node1"), result.reason
    assert WAYS[way] in result.reason
    assert result.reason.startswith("rank 1 (node1) ")
    assert "\n" not in result.reason


@pytest.mark.local_first
def test_a_rank_that_left_early_is_shown_with_its_own_line(run: Run) -> None:
    result = run("fail.py", "exits_early", 1)

    assert result.culprit is not None
    left = r"exited early, with code 0 at fail\.py:\d+ after all_reduce #1 at fail\.py:\d+, while others"
    assert re.search(left, result.reason)
    assert result.culprit.traceback == ""  # not that of a rank which lost it


ONE_EACH = (("raises", 0), ("kills_itself", 1), ("exits_early", 4))
"""Each way and each rank once."""


@pytest.mark.local_first
@pytest.mark.parametrize(
    ("way", "culprit"),
    [
        pytest.param(way, culprit, marks=() if (way, culprit) in ONE_EACH else pytest.mark.long)
        for way in ("raises", "exits_early", "kills_itself")
        for culprit in (0, 1, 4)
    ],
)
def test_any_rank_can_be_the_culprit(run: Run, way: str, culprit: int) -> None:
    result = run("fail.py", way, culprit, nodes=3, nproc_per_node=2)

    assert result.verdict == "failed"
    assert result.culprit is not None
    assert (result.culprit.rank, result.culprit.node) == (culprit, f"node{culprit // 2}"), result.reason


@pytest.mark.local_first
def test_the_culprit_is_found_among_several_ranks_of_a_node(run: Run) -> None:
    result = run("fail.py", "raises", 4, nodes=2, nproc_per_node=3)

    assert result.culprit is not None
    assert (result.culprit.rank, result.culprit.node) == (4, "node1")


@pytest.mark.local_first
def test_the_culprit_is_named_in_a_cold_run_too(run: Run) -> None:
    result = run("fail.py", "raises", 1, nodes=2, cold=True)

    assert result.culprit is not None
    assert result.culprit.rank == 1, result.reason
    assert RAISED in result.reason


@pytest.mark.local_first
def test_the_traceback_of_the_culprit_has_file_names_relative_to_the_script(run: Run) -> None:
    result = run("fail.py", "raises", 2)

    assert result.culprit is not None
    lines = result.culprit.traceback.splitlines()
    assert lines[-1].endswith(golden(1))
    assert '  File "fail.py", line ' in result.culprit.traceback
    assert ", in deeper" in result.culprit.traceback
    assert "labnode" not in result.culprit.traceback
    assert "/" not in result.culprit.traceback


@pytest.mark.local_first
def test_the_log_of_the_culprit_ends_with_the_traceback_that_python_prints(run: Run) -> None:
    result = run("fail.py", "raises", 2)

    assert golden(1) in result.ranks[2].log
    assert result.ranks[2].log.rstrip().endswith(golden(2))
    assert "labnode" not in result.ranks[2].log


@pytest.mark.local_first
def test_ranks_that_lost_their_peer_are_stopped_or_failed_but_not_blamed(run: Run) -> None:
    result = run("fail.py", "raises", 1, nproc_per_node=2)

    assert [rank.rank for rank in result.ranks if rank.exit_code == 0] == []
    for rank in result.ranks:
        assert rank.stopped or rank.exit_code == 1, rank


@pytest.mark.local_first
@pytest.mark.parametrize("reaction", ["wraps", "exits_1", "reports_and_raises"])
def test_a_rank_that_handles_the_loss_of_its_peer_is_not_blamed(run: Run, reaction: str) -> None:
    result = run("fail.py", "raises_late", 1, reaction)

    assert result.culprit is not None
    assert result.culprit.rank == 1, result.reason
    assert RAISED in result.reason


def test_a_segmentation_fault_shows_the_python_line_and_the_stack(run: Run) -> None:
    result = run("fail.py", "segfaults", 1)

    assert result.ranks[1].signal == "SIGSEGV"
    assert result.ranks[1].exit_code is None
    assert result.culprit is not None
    assert 'File "fail.py", line ' in result.culprit.traceback
    assert "in segfaults" in result.culprit.traceback


@pytest.mark.local_first
def test_the_text_of_sys_exit_is_in_the_log_and_in_the_culprit(run: Run) -> None:
    result = run("fail.py", "exits_with_text", 1)

    assert golden(1) in result.ranks[1].log
    assert result.reason.endswith(golden(2))


@pytest.mark.local_first
def test_a_failure_ends_the_run_although_others_would_sleep_for_an_hour(run: Run) -> None:
    result = run("manners.py", "sleeps_while_one_fails", 2, nodes=3)

    assert result.culprit is not None
    assert result.culprit.rank == 2
    assert [rank.stopped for rank in result.ranks] == [True, True, False]


@pytest.mark.local_first
def test_ranks_that_ignore_sigterm_are_ended_all_the_same(run: Run) -> None:
    result = run("manners.py", "ignores_sigterm", 0, nodes=3)

    assert result.reason == golden(1) + result.reason.rsplit(":", 1)[1]
    assert [rank.stopped for rank in result.ranks] == [False, True, True]
    assert "not now" in result.ranks[1].log


@pytest.mark.local_first
def test_ranks_that_handle_sigterm_can_say_their_last_words(run: Run) -> None:
    result = run("manners.py", "handles_sigterm", 0, nodes=3)

    assert result.culprit is not None
    assert result.culprit.rank == 0
    assert [rank.log.count("saved a checkpoint") for rank in result.ranks] == [0, 1, 1]


@pytest.fixture
def small_cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Two nodes of 700 MiB."""
    return make_cluster(nodes=2, memory_bytes=700 * 2**20)


@pytest.mark.parametrize("culprit", [pytest.param(0, marks=pytest.mark.long), 1])
def test_a_rank_that_takes_more_memory_than_its_node_has_is_killed_and_the_reason_says_so(
    run: Run, small_cluster: Cluster, culprit: int
) -> None:
    result = run("memory.py", culprit, on=small_cluster)

    assert result.verdict == "failed"
    assert result.culprit is not None
    assert (result.culprit.rank, result.culprit.node) == (culprit, f"node{culprit}"), result.reason
    assert re.fullmatch(
        golden(1, culprit, culprit),
        result.reason,
    ), result.reason
    assert run("collectives.py", on=small_cluster).passed


def test_nothing_is_out_of_memory_below_the_limit(run: Run, small_cluster: Cluster) -> None:
    result = run("collectives.py", on=small_cluster, nproc_per_node=3)

    assert result.passed, result.reason


@pytest.mark.local_first
def test_an_error_whose_text_cannot_be_made_is_reported_and_disturbs_no_call(run: Callable[..., Result]) -> None:
    result = run("handles_an_odd_error.py")

    assert result.culprit is not None
    assert (result.culprit.rank, result.ranks[1].error) == (1, "Odd: <exception str() failed>")
    assert result.ranks[1].traceback.rstrip().endswith("<exception str() failed>")
