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
pytestmark = [
    pytest.mark.local,
    pytest.mark.torch,
    pytest.mark.timeout(170),
    pytest.mark.xdist_group("equal-programs"),
    pytest.mark.half,
]


@pytest.fixture(scope="module")
def runner(person: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[runs.Runner]:
    """Runs programs with one and two ranks on one local cluster."""
    ways = runs.ways_of_ranks(open_scenario(PROGRAMS / "right" / "ddp.py"), (1, 2))
    options = RunOptions(runs=tmp_path_factory.mktemp("runs"))
    with runs.runner_for(ways, "local", options, lambda _: None, {}) as one:
        yield one


def compare(runner: runs.Runner, path: Path) -> Comparison:
    [compared] = runs.compare_ways(runner.record, runs.ways_of_ranks(open_scenario(path), (1, 2)))
    assert not compared.problems
    return compared


def test_a_script_without_a_seed_is_reported(runner: runs.Runner, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text((PROGRAMS / "right" / "ddp.py").read_text().replace("torch.manual_seed(0)", "torch.seed()"))
    found = compare(runner, script).difference
    assert found is not None
    assert found.cause == "no seed"


def test_forged_steps_are_refused(runner: runs.Runner, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    forge = "from labnode.node.recorder.journal import journal; journal.add('equal', o=[0], n={})\n"
    script.write_text((PROGRAMS / "right" / "ddp.py").read_text() + forge)
    with pytest.raises(UsageError, match="damaged"):
        compare(runner, script)


def test_a_sentence_names_the_line_that_sends_or_reduces(runner: runs.Runner) -> None:
    for name, words in (
        ("stage_sends_old", golden(1)), ("reduced_alone", golden(2)), ("clamped_on_one_rank", golden(3))
    ):  # fmt: skip
        found = compare(runner, PROGRAMS / "wrong" / f"{name}.py").difference
        assert found is not None
        assert words in found.sentence


def test_a_gradient_that_one_rank_replaces_is_not_blamed_on_backward(runner: runs.Runner, tmp_path: Path) -> None:
    script, text = tmp_path / "train.py", (PROGRAMS / "wrong" / "clamped_on_one_rank.py").read_text()
    script.write_text(text.replace("parameter.grad.clamp_(", "parameter.grad = parameter.grad.clamp("))
    found = compare(runner, script).difference
    assert found is not None
    assert (found.what, found.ranks, found.line) == ("reduced gradient", (1,), "")
    assert golden(1) in found.sentence


@pytest.mark.sample(1)  # all are compared by the same code
@pytest.mark.parametrize("path", RIGHT)
def test_a_correct_program_is_equal(runner: runs.Runner, path: Path) -> None:
    compared = compare(runner, path)
    assert compared.difference is None
    assert compared.steps >= 3
    assert compared.tensors >= 12


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", WRONG)
def test_a_silent_error_is_reported_with_its_line(runner: runs.Runner, path: Path) -> None:
    text = path.read_text()
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "# wrong" in line)
    what, cause, step, name, factor = [word.strip() for word in text.split('"""')[1].split("|")]
    found = compare(runner, path).difference
    assert found is not None
    assert (found.what, found.cause, found.step, found.name) == (what, cause, int(step), name)
    assert found.line == f"{path.name}:{line}"
    assert (f"{found.factor:.3f}" if found.factor is not None else "") == factor
