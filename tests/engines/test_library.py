"""The scenario library: every lesson at its own size, and at other sizes where that makes sense."""

from __future__ import annotations

import pytest

from tests.engines.lessons import FILES, Lesson, on_engines, own_size

OTHER_SIZE = (2, 2)
SIZES = ((1, 1), (2, 1), (3, 1), (5, 1), OTHER_SIZE)
"""Nodes, and workers of each."""
ONE_SIZE_ONLY: dict[str, str] = {
    "elastic/": "three nodes, of which one is lost or comes, and what training on 2 or 3 of them gives",
    "incidents/": "the culprit has a number",
    "survival/": "who is lost has a number",
    "network/": "what is asked is how long its own size takes",
    "broken/": "the culprit has a number, and alone nobody waits",
    "collectives/tutorial_": "the tutorial's three containers, and what each of them prints",
}
"""Lessons, or folders of them, that mean nothing at another size, and why."""
RESIZED_DAILY = {
    "beyond_ddp/tensor_parallel", "checkpoints/reshard", "collectives/all_to_all", "collectives/reduce_scatter",
    "collectives/scatter_rows", "data/distributed_sampler", "ddp/story", "gradients/all_gather_functional",
    "groups/new_group", "metrics/averaged_metrics", "numbering/rank_table", "point_to_point/ring_all_reduce",
    "rendezvous/env_init", "scatter",
}  # fmt: skip
"""A cheap lesson of each topic: the others run at other sizes in the long run only."""
RESIZED = [
    pytest.param(
        name,
        *size,
        id=f"{name}-{size[0]}x{size[1]}",
        marks=() if size == OTHER_SIZE and name in RESIZED_DAILY else pytest.mark.long,
    )
    for name in FILES
    for size in SIZES
    if not name.startswith(tuple(ONE_SIZE_ONLY)) and size != own_size(name)
]


@on_engines(FILES, "slurm")
def test_a_lesson_shows_what_it_promises(name: str, lesson: Lesson) -> None:
    result = lesson(name)
    assert result.passed, result.reason


@pytest.mark.parametrize("engine", ["local"], indirect=True)
@pytest.mark.parametrize(("name", "nodes", "nproc_per_node"), RESIZED)
def test_a_lesson_holds_at_other_sizes(name: str, nodes: int, nproc_per_node: int, lesson: Lesson) -> None:
    """The arithmetic of a size is the same on every engine."""
    result = lesson(name, nodes, nproc_per_node)
    assert result.passed, result.reason
