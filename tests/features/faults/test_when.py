"""What may set a fault off."""

from __future__ import annotations

import re
from pathlib import Path

import lab.node
from lab.features.faults.fault import PHASES


def test_phases_are_those_that_the_recorder_marks() -> None:
    folder = Path(lab.node.__path__[0])
    modules = ("recorder/phases", "recorder/groups", "../features/training/on_node/ddp")
    text = "".join((folder / f"{name}.py").read_text() for name in modules)
    marked = re.findall(r'(?:wrap_phase, |wrap_phase\(|begin_phase\(|_emit\(|_wrap_function\()b?"([^"]+)"', text)
    assert set(marked) == set(PHASES)
