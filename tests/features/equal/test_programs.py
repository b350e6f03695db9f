"""`lab equal` on programs with planted errors, whose docstrings say what is expected, and on correct ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.errors import UsageError
from lab.features.equal import runs
from lab.features.equal.compare import Comparison
from lab.run.options import RunOptions
from lab.spec.load import open_scenario
from tests.golden import golden

PROGRAMS = Path(__file__).parent / "programs"
RIGHT, WRONG = (
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.long] if "more" in path.parts else [])
        for path in sorted(PROGRAMS.rglob(f"{kind}/*.py"))
    ]
    for kind in ("right", "wrong")
)
pytestmark = [pytest.mark.local, pytest.mark.torch, pytest.mark.timeout(170), pytest.mark.xdist_group("equal-programs")]


@pytest.fixture(scope="module")
def runner(person: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[runs.Runner]:
    """Runs programs with one and two ranks on one local cluster."""
    ways = runs.ways_of_ranks(open_scenario(PROGRAMS / "right" / "ddp.py"), (1, 2))
    options = RunOptions(runs=tmp_path_factory.mktemp("runs"))
    with runs.runner_for(ways, "local", options, lambda _: None) as one:
        yield one


def compare(runner: runs.Runner, path: Path) -> Comparison:
    [compared] = runs.compare_ways(runner, runs.ways_of_ranks(open_scenario(path), (1, 2)))
    assert not compared.problems
    return compared


def test_a_script_without_a_seed_is_reported(runner: runs.Runner, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text((PROGRAMS / "right" / "ddp.py").read_text().replace("torch.manual_seed(0)", "torch.seed()"))
    found = compare(runner, script).difference
    assert found is not None
    assert found.cause == "no seed"




def test_a_gradient_of_a_stage_names_the_line_that_sent_it(runner: runs.Runner) -> None:
    found = compare(runner, PROGRAMS / "wrong" / "stage_sends_old.py").difference
    assert found is not None
    assert golden(1) in found.sentence
