"""The key `launcher`: a name, or a mapping from it to what it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import ScenarioError
from lab.features.launchers.launchers import Torchrun
from lab.spec.launching import Lab, Launching
from lab.spec.load import dump_scenario, load_scenario
from lab.spec.scenario import Scenario


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("print()\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(said: str) -> Scenario:
    Path("s.yaml").write_text(f"script: train.py\n{said}\n")
    return load_scenario(Path("s.yaml"))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("", Launching()),
        ("launcher: lab", Launching()),
        ("launcher: {lab: {max_restarts: 2}}", Launching("lab", Lab(max_restarts=2))),
        ("launcher: {lab: {max_restarts: 0}}", Launching()),
        ("launcher: torchrun", Launching(name="torchrun")),
        ("launcher: {torchrun: {}}", Launching(name="torchrun")),
        (
            "launcher: {torchrun: {min_nodes: 2, max_restarts: 3, monitor_interval: 0.5}}",
            Launching("torchrun", Torchrun(min_nodes=2, max_restarts=3, monitor_interval_s=0.5)),
        ),
    ],
)
def test_it_is_a_name_or_says_more(folder: Path, said: str, meant: Launching) -> None:
    scenario = load(said)
    assert scenario.launcher == meant
    assert load_scenario(_dumped(scenario)).launcher == meant


def _dumped(scenario: Scenario) -> Path:
    path = Path("again.yaml")
    path.write_text(dump_scenario(scenario))
    return path


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("launcher: torchrum", "2:11: launcher: found 'torchrum' (did you mean 'torchrun'?); allowed: lab, torchrun"),
        ("launcher: 3", "launcher: found the number 3; allowed: lab, torchrun"),
        ("launcher: {}", "launcher: found a mapping with 0 keys; allowed:"),
        ("launcher: {slurm: {}}", "launcher: unknown key 'slurm'; allowed:"),
        ("launcher: {torchrun: {nodes: 3}}", "launcher.torchrun: unknown key 'nodes'"),
        ("launcher: {torchrun: {max_restarts: -1}}", "launcher.torchrun.max_restarts: found the number -1"),
        ("launcher: {torchrun: {min_nodes: 3, max_nodes: 2}}", "min_nodes is 3, more than max_nodes, 2"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(folder: Path, said: str, refused: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        load(said)
    assert refused in refusal.value.message
