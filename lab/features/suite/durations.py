"""How long scenarios took, from the records of earlier runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from lab.record.read import Record

_FOLDER = re.compile(r"\d{8}-\d{6}-((.+?)(?:-\d+)?)")
"""Its second part is for the further runs of one second."""
_AROUND_S = 0.1
"""What a run takes besides the time of its ranks."""


def known_durations(runs: Path, scenarios: Iterable[str]) -> dict[str, float]:
    """Seconds that the latest run of each of these scenarios took, by name; without those that are not on record."""
    wanted = set(scenarios)
    found: dict[str, float] = {}
    try:
        names = sorted(os.listdir(runs), reverse=True)
    except OSError:
        return {}
    for name in names:
        match = _FOLDER.fullmatch(name)
        scenario = next((one for one in match.groups() if one in wanted), None) if match else None
        if scenario is not None and scenario not in found:
            duration_s = Record(path=runs / name).result_or_refusal().duration_s
            if duration_s and duration_s > 0:  # it came to an end
                found[scenario] = duration_s + _AROUND_S
    return found
