"""The schedule that was found, as a scenario: a file beside the script, which `lab run` takes as any other."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from lab.errors import UsageError
from lab.features.chaos.search import PROOFS, Found
from lab.features.faults.fault import broken_in, fault_data, fault_sentence, with_faults
from lab.spec.load import dump_scenario
from lab.spec.scenario import Scenario
from lab.words import clip

_LONGEST_LINE = 200
_LONGEST_NAME = 60


def place_for(scenario: Scenario, seed: int, out: Path | None) -> Path:
    """Where the scenario goes: a file that is not there yet, in the folder of the script, from where it is shipped.

    Raises:
        UsageError: nothing can be written there.
    """
    folder = scenario.script.parent
    name = clip(f"chaos-{seed}-{scenario.name}", _LONGEST_NAME)
    path = folder / f"{name}.yaml" if out is None else Path(os.path.abspath(out))
    if path.parent != folder:
        raise UsageError(
            f"{path} is not beside the script", f"a scenario lies with its script: name a file in {folder}"
        )
    if path.exists() and out is not None:
        raise UsageError(f"{path} is there already", "name another file, or remove it")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"nothing can be written into {folder}", "search with a copy of the scenario and its script")
    number = 1
    while path.exists():
        number += 1
        path = folder / f"{name}-{number}.yaml"
    return path


def scenario_of(scenario: Scenario, found: Found, path: Path, timeout_s: float, size: tuple[int, int]) -> Scenario:
    """The scenario with the faults that were found; where the next run is what fails, it is to be run once more."""
    again = any(trial.after for trial in found.trials if trial.step == "proof")
    bare = replace(
        scenario,
        name=path.stem,
        source=path,
        learn="",
        extra={name: value for name, value in scenario.extra.items() if name in ("network", "requirements")},
        nodes=size[0],
        nproc_per_node=size[1],
        timeout_s=timeout_s,
    )
    return with_faults(bare, found.schedule or (), rerun=again)


def write_scenario(scenario: Scenario, found: Found, command: str) -> None:
    """Write it.

    Raises:
        UsageError: it cannot be written.
    """
    assert scenario.source is not None
    told = [
        f"Found by `{command}`.",
        *(fault_sentence(fault_data(fault)) for fault in broken_in(scenario).faults),
        f"In {found.proofs} of {PROOFS} runs: {found.broken}",
    ]
    head = "".join(f"# {clip(' '.join(line.split()), _LONGEST_LINE)}\n" for line in told)
    try:
        scenario.source.write_text(head + dump_scenario(scenario), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{scenario.source} cannot be written: {error.strerror}") from error
