"""Memory that somebody else on the node eats up, or that is taken away: what a rank then wants is not there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.features.faults.fault import Fault, When
from lab.features.faults.kinds import FaultKind
from lab.features.faults.kinds.nodes import Hog, Memory
from tests.engines.conftest import written

SCRIPT = """\
import torch
from lab import note

note("had", 0)
torch.ones(50_000_000)  # 200 MB
note("had", 200)
"""


@pytest.mark.sample(1)  # one limit for both
@pytest.mark.parametrize("engine", [pytest.param("docker", marks=pytest.mark.docker)], indirect=True)
@pytest.mark.parametrize(
    "what", [Hog(node="node0", leave_bytes=100 << 20), Memory(node="node0", limit_bytes=320 << 20)]
)
def test_a_rank_that_wants_memory_that_is_not_there_is_killed_and_later_gets_it(
    run: Callable[..., Result], make_cluster: Callable[..., Cluster], tmp_path: Path, what: FaultKind
) -> None:
    cluster, script = make_cluster(nodes=2, memory_bytes=700 * 2**20), written(tmp_path / "s", SCRIPT)
    fault = Fault(what=what, when=When(rank=0, note="had", equals=0))
    starved = run(script, on=cluster, nodes=1, faults=(fault,))
    assert [fault["failed"] for fault in starved.faults] == [""]
    assert starved.ranks[0].notes == {"had": 0}
    assert "memory" in starved.reason
    fed = run(script, on=cluster, nodes=1)
    assert fed.passed, fed.reason
