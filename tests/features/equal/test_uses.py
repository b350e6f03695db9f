"""`lab equal` on the command line, between commits, in scenarios, and in tests."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import lab
from lab import Result
from lab.cli.main import main
from lab.features.equal import runs
from lab.features.equal.compare import Comparison
from lab.node.warm import PRELOAD, SLOW_MODULES
from lab.spec.load import open_scenario
from lab.spec.scenario import Scenario
from tests.pytest_process import pytest_environment, pytest_words

PROGRAMS = Path(__file__).parent / "programs"
pytestmark = [
    pytest.mark.local,
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("equal-uses"),
    pytest.mark.half,
]
GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a"}


@pytest.fixture
def folder(person: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which commands run; their clusters import once what optimizers need."""
    monkeypatch.setenv(PRELOAD, SLOW_MODULES[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commit(folder: Path, text: str) -> str:
    (folder / "train.py").write_text(text)
    env = {**os.environ, **GIT, "GIT_COMMITTER_EMAIL": "a@b"}
    for words in (["init", "-q"], ["add", "train.py"], ["commit", "-q", "-m", f"change {len(text)}"]):
        subprocess.run(["git", *words], cwd=folder, env=env, check=True)
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, env=env, check=True, capture_output=True)
    return done.stdout.decode().strip()


def test_the_exit_code_and_json_say_what_differs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text((PROGRAMS / "wrong" / "not_divided.py").read_text())
    assert main(["equal", "train.py", "--ranks", "1,2", "--engine", "local", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert not answer["equal"]
    [compared] = answer["comparisons"]
    assert compared["difference"]["cause"] == "not divided"
    assert round(compared["difference"]["factor"], 3) == 2.0
    assert compared["difference"]["line"].startswith("train.py:")


def test_bisect_finds_the_first_commit_that_differs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (PROGRAMS / "right" / "ddp.py").read_text()
    right = commit(folder, text)
    commit(folder, f"{text}\n# a comment\n")
    wrong = commit(folder, f"{text.replace('lr=0.01', 'lr=0.02')}\n")
    commit(folder, f"{text.replace('lr=0.01', 'lr=0.02')}\n# another comment\n")
    words = ["equal", f"train.py@{right}", "train.py", "--bisect", "--ranks", "2", "--engine", "local", "--json"]
    assert main(words) == 1
    answer = json.loads(capsys.readouterr().out)
    assert wrong.startswith(answer["commit"].split()[0])
    assert answer["comparisons"][0]["difference"]["cause"] == "optimizer settings"


@pytest.mark.parametrize(
    "words",
    [
        ["--ranks", "1"],
        ["--ranks", "2,2"],
        ["--ranks", "two"],
        ["--bisect"],
        ["b.py", "c.py"],
        ["b.py", "--ranks", "1,2"],
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], folder: Path) -> None:
    (folder / "a.py").write_text("print()\n")
    assert main(["equal", "a.py", *words, "--engine", "local"]) == 2


def test_steps_that_depend_on_rounding_are_named_as_not_compared() -> None:
    facts = {"before": "1 rank", "after": "2 ranks", "steps": 9, "tensors": 36, "tolerance": 0.1, "largest": 0.01}
    texts = [runs.comparisons_text([Comparison(**facts, later=later)], "", lambda text, _: text) for later in (0, 3)]
    assert ["not compared: 3 later steps" in text for text in texts] == [False, True]


def train(folder: Path, program: str) -> tuple[Scenario, Result]:
    """Run a program that its scenario expects to be equal to one rank."""
    (folder / "train.py").write_text((PROGRAMS / program).read_text())
    (folder / "train.yaml").write_text("script: train.py\nnodes: 2\nexpect: {equal_to: {ranks: 1}}\n")
    scenario = open_scenario(folder / "train.yaml")
    return scenario, lab.Cluster(engine="local", name="lab-test-equal").run(scenario)


def test_a_scenario_can_expect_it_and_a_result_be_compared(folder: Path) -> None:
    scenario, result = train(folder, "wrong/summed_after_ddp.py")
    [stated] = [one for one in result.expectations if one.what == "equal_to"]
    assert not stated.met
    assert not result.passed
    with pytest.raises(AssertionError, match=r"2\.000 x"):
        runs.equals_for(scenario, result)(ranks=1)


@pytest.mark.long  # the same way to its verdict as above; what is equal is tried by the programs
def test_an_expectation_is_met_by_a_correct_program(folder: Path) -> None:
    _, result = train(folder, "right/ddp.py")
    [stated] = [one for one in result.expectations if one.what == "equal_to"]
    assert stated.met
    assert result.passed


DECORATED = """
import torch
import torch.distributed as dist

import lab


def train(rank, world_size, factor):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        optimizer.zero_grad()
        model(inputs.chunk(world_size)[rank]).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad *= factor / world_size
        optimizer.step()


@lab.equal(ranks=(1, 2), engine="local")
def test_right(rank, world_size):
    train(rank, world_size, 1.0)


@lab.equal(ranks=(1, 2), engine="local")
def test_wrong(rank, world_size):
    train(rank, world_size, float(world_size))
"""


def test_a_decorated_function_is_compared(folder: Path) -> None:
    (folder / "test_training.py").write_text(DECORATED)
    (folder / "pytest.ini").write_text("[pytest]\n")
    ended = subprocess.run(pytest_words(), env=pytest_environment(), capture_output=True, text=True, timeout=200)
    assert "1 failed, 1 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "2.000 x that of 1 rank" in ended.stdout
