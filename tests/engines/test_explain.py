"""What went wrong in real runs is explained: what kind of thing, by which rank, at which line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Result
from lab.diagnosis.explain import Explanation, explain_run
from lab.record.read import Record
from tests.engines.conftest import SCRIPTS, judge_again
from tests.engines.lessons import LIBRARY, Lesson, on_engines

Run = Callable[..., Result]
EXPECTED: dict[str, tuple[str, tuple[int, ...], str]] = {
    "different_order": ("mismatch", (2,), "dist.all_reduce(count)  # the mistake"),
    "exception_on_one_rank": ("failed", (1,), 'labels = data["labels"]'),
    "extra_call": ("went_alone", (2,), "# the mistake: a fourth one"),
    "groups_cross": ("deadlock", (), "dist.all_reduce(loss, group=losses"),
    "mismatched_collectives": ("mismatch", (1,), "dist.broadcast(tensor, src=0)  # the mistake"),
    "never_arrives": ("never_entered", (1,), "time.sleep(3600)"),
    "only_on_rank0": ("mismatch", (0,), "dist.all_reduce(loss)"),
    "port_taken": ("failed", (0,), "store = dist.TCPStore("),
    "rank0_exits_early": ("left_early", (0,), "sys.exit(0)"),
    "straggler": ("straggler", (1,), "dist.all_reduce(torch.ones(4))"),
    "tags_ignored": ("rejected", (), "dist.isend(loss"),
    "unequal_batches": ("went_alone", (0,), "loss.backward()"),
    "wrong_dtype": ("dtype", (1,), "dist.all_reduce(tensor)"),
    "wrong_shape": ("shape", (1,), "dist.all_reduce(tensor)"),
    "wrong_world_size": ("rendezvous", (), "dist.init_process_group("),
}
"""Script -> kind and ranks of the first finding, and words of the line that is the first of its lines."""


def line_of(script: Path, words: str) -> str:
    """`file:line` of the first line that holds these words."""
    lines = script.read_text().splitlines()
    return f"{script.name}:{next(number for number, line in enumerate(lines, 1) if words in line)}"


def explained(result: Result) -> Explanation:
    assert result.path is not None
    return explain_run(Record(path=result.path))


def test_every_broken_scenario_has_an_explanation_here() -> None:
    assert set(EXPECTED) == {path.stem for path in (LIBRARY / "broken").glob("*.yaml")}


@on_engines(f"broken/{name}" for name in EXPECTED)
def test_a_broken_scenario_is_explained(name: str, lesson: Lesson) -> None:
    kind, ranks, words = EXPECTED[name.removeprefix("broken/")]
    result = lesson(name)
    judge_again(result)
    explanation = explained(result)

    assert explanation.findings, explanation
    first = explanation.findings[0]
    assert (first.kind, first.ranks) == (kind, ranks), explanation.findings
    assert first.lines[0] == line_of(LIBRARY / f"{name}.py", words)
    assert explanation.problems == ()


WAITING: dict[str, tuple[int, str, int | None, str, str]] = {
    "rank_1_skips_a_call_of_its_loop": (2, "mismatch", 1, "# where rank 1 is too early", "deviated from them"),
    "two_ranks_disagree_at_once": (2, "mismatch", None, "# where rank 0 is", "no majority"),
    "three_ranks_are_in_three_places": (3, "mismatch", 2, "# the odd one", "ranks 0 and 1 called all_reduce"),
    "rank_1_never_comes_to_backward": (3, "never_entered", 1, "# instead of backward", "Ranks 0 and 2 waited there"),
    "rank_1_never_comes_and_others_hold_a_handle": (3, "never_entered", 1, "# without a handle", "all_reduce #1"),
    "a_chain_over_two_groups": (3, "never_entered", 2, "# where the chain ends", "all_reduce #1 in [1, 2]"),
    "everybody_receives_first": (3, "deadlock", None, "# nobody has sent", "Each of these ranks receives"),
}
"""Way of `waiting.py` -> number of ranks, kind, culprit, words of its line, words of the sentence."""


@pytest.mark.trains
@pytest.mark.local_first
@pytest.mark.parametrize("way", WAITING)
def test_who_kept_the_others_waiting_is_found_where_stacks_alone_do_not_tell(run: Run, hang: Run, way: str) -> None:
    nodes, kind, culprit, words, sentence = WAITING[way]
    if way == "rank_1_never_comes_to_backward":  # a process's first DDP module imports for seconds, but for the agents
        assert run("ddp.py", nodes=nodes).passed
    result = hang("waiting.py", way, nodes=nodes)
    first = explained(result).findings[0]

    assert result.verdict == "hung"
    assert (result.culprit.rank if result.culprit else None) == culprit, result.reason
    assert (first.kind, first.ranks) == (kind, () if culprit is None else (culprit,)), first
    assert sentence in first.sentence
    assert first.lines[0] == line_of(SCRIPTS / "waiting.py", words)


@pytest.mark.local_first
def test_a_rank_that_brought_other_tensors_is_the_culprit_of_whatever_fails_then(hang: Run) -> None:
    result = hang("waiting.py", "rank_1_brings_fewer_rows_without_debugging")
    first = explained(result).findings[0]

    assert result.verdict in ("hung", "failed")
    assert result.culprit is not None
    assert (result.culprit.rank, first.kind, first.ranks) == (1, "shape", (1,)), result.reason
    assert first.lines[0] == line_of(SCRIPTS / "waiting.py", "# uneven")


@pytest.mark.local_first
def test_a_run_that_passed_gets_an_account_and_nothing_is_said_to_be_wrong(run: Run) -> None:
    explanation = explained(run("waiting.py", "all_is_well"))

    assert [finding.kind for finding in explanation.findings][-1] == "account"
    assert "entered 2 collectives" in explanation.findings[-1].sentence
    assert not any(finding.ranks for finding in explanation.findings)
    assert explanation.stacks == {}
