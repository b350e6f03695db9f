"""Whatever a script does to itself, its agent or its node: its run has the right verdict, and so has the next one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab import Result
from lab.node.messages.agent import Halted
from lab.record.read import Record

Run = Callable[..., Result]
PASSED = ("passed", "")
DEEDS = {
    "prints_without_a_newline": PASSED,
    "prints_bytes_that_are_no_text": PASSED,
    "prints_what_agents_say": PASSED,
    "reads_what_it_printed": PASSED,
    "closes_every_descriptor": PASSED,
    "writes_into_every_descriptor": PASSED,
    "puts_other_files_under_its_descriptors": PASSED,
    "notes_for_others": PASSED,
    "says_that_it_passed_and_fails": ("failed", "rank 0 (node0) exited with code 3"),
    "blames_another_rank": ("failed", "rank 0 (node0)"),
    "says_that_it_imported_all_kinds_of_things": PASSED,
    "is_stopped_and_let_go_all_the_time": PASSED,
    "claims_to_be_another_rank_in_its_trace": PASSED,
    "makes_its_trace_large_with_nothing_in_it": PASSED,
    "empties_its_trace": PASSED,
    "seals_its_trace": PASSED,
    "ends_with_a_number_too_large": ("failed", "rank 0 (node0) exited with code 3"),
    "becomes_another_program": PASSED,
    "leaves_its_work_to_a_child": PASSED,
    "is_killed_when_all_is_done": ("failed", "rank 0 (node0) was killed by SIGKILL"),
    "kills_its_group": ("failed", "rank 0 (node0) was killed by SIGKILL"),
    "crashes_and_leaves_its_memory": ("failed", "rank 0 (node0) was killed by SIGABRT"),
    "takes_its_own_limits_away": PASSED,
    "changes_the_lab_in_itself": ("failed", "rank 0 (node0)"),
    "leaves_processes_that_hide": PASSED,
    "makes_brothers": PASSED,
    "makes_zombies": PASSED,
    "watches_and_slows_itself": PASSED,
    "starts_threads_that_do_not_end": PASSED,
    "leaves_names_that_nobody_can_print": PASSED,
    "leaves_files_that_are_none": PASSED,
    "leaves_a_file_of_a_terabyte": PASSED,
    "leaves_a_folder_of_many_files": PASSED,
    "leaves_files_of_the_future": PASSED,
    "puts_a_link_in_the_place_of_its_folder": PASSED,
    "takes_its_folder_away": PASSED,
    "leaves_code_for_the_next_interpreter": PASSED,
    "takes_names_and_ports": PASSED,
    "uses_ports_up": PASSED,
    "changes_what_is_in_the_store": PASSED,
    "talks_nonsense_to_the_store": PASSED,
}
"""What rank 0 does; the verdict of its run, and what its reason says."""
ONLY_IN_A_CONTAINER = {"kills_whom_it_can": PASSED, "leaves_names_that_torch_uses": PASSED}
"""On the local engine they would do it to the machine."""
HANGS = {
    "stops_itself": ("hung", "rank 0"),
    "hears_nothing": ("hung", "rank 0"),
    "waits_for_a_file_in_the_place_of_its_script": ("hung", "rank 0"),
}
QUICK = (
    *("prints_what_agents_say", "closes_every_descriptor", "says_that_it_passed_and_fails", "blames_another_rank"),
    *("empties_its_trace", "makes_brothers", "leaves_code_for_the_next_interpreter", "takes_names_and_ports"),
)


def wrongs(run: Run, deeds: dict[str, tuple[str, str]], timeout_s: float = 120.0) -> dict[str, str]:
    """What was not as it should be, by deed: in its run, or in the good run after it."""
    found = {}
    for deed, (verdict, reason) in deeds.items():
        result = run("mischief.py", deed, timeout_s=timeout_s)
        after = run("../../engines/scripts/collectives.py")
        innocent = result.ranks[1]
        if result.verdict != verdict or reason not in result.reason:
            found[deed] = f"{result.verdict}: {result.reason}"
        elif result.culprit is not None and result.culprit.rank == 1:
            found[deed] = f"rank 1 is blamed: {result.reason}"
        elif innocent.exit_code != 0 and not innocent.stopped:
            found[deed] = f"rank 1 ended with {innocent.ended}"
        elif dict(innocent.notes) not in ({"honest": 1}, {}):
            found[deed] = f"rank 1 is said to have noted {innocent.notes}"
        elif not after.passed:
            found[deed] = f"the next run: {after.verdict}: {after.reason}"
    return found


@pytest.mark.parametrize(
    "deeds", [QUICK, pytest.param(DEEDS, marks=[pytest.mark.long, pytest.mark.timeout(600)])], ids=["some", "all"]
)
def test_a_run_with_a_hostile_rank_has_its_verdict_and_the_next_one_is_right(run: Run, deeds: list[str]) -> None:
    assert wrongs(run, {name: DEEDS[name] for name in deeds}) == {}


def test_a_worker_that_says_that_something_had_started_it_does_not_end_its_agent(run: Run) -> None:
    assert run("mischief.py", "joins_as_if_something_had_started_it").verdict == "passed"
    assert run("../../engines/scripts/collectives.py").passed


@pytest.mark.long
@pytest.mark.docker
@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_so_it_is_with_what_only_containers_bear(run: Run) -> None:
    assert wrongs(run, ONLY_IN_A_CONTAINER) == {}
    looked = run("looks.py", nodes=1)
    assert looked.ranks[0].notes["strange"] == []


@pytest.mark.long
def test_so_it_is_with_what_does_not_end(run: Run) -> None:
    assert wrongs(run, HANGS, timeout_s=3.0) == {}


@pytest.mark.local_first
def test_a_worker_that_is_stopped_and_let_go_without_end_does_not_fill_the_record(run: Run) -> None:
    result = run("mischief.py", "is_stopped_and_let_go_all_the_time", nodes=1)

    assert result.path is not None
    told = [event for event in Record(path=result.path).events() if isinstance(event, Halted)]
    assert 0 < len(told) <= 100
