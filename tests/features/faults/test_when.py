"""What may set a fault off."""

from __future__ import annotations

import re
from pathlib import Path

import lab.node.recorder
from lab.features.faults.fault import PHASES


def test_phases_are_those_that_the_recorder_marks() -> None:
    folder = Path(lab.node.recorder.__path__[0])
    text = "".join((folder / f"{name}.py").read_text() for name in ("marks", "ddp", "groups"))
    marked = re.findall(r'(?:marked, |marked\(|_mark\()b?"([^"]+)"', text)
    assert set(marked) == set(PHASES)
