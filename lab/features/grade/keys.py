"""The key `grade` of scenarios: the points for each expectation, and the files that each submission gets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from lab.frozen import Frozen
from lab.spec.declare import get_feature_values, key_field
from lab.spec.keys import resolve_inside
from lab.spec.kinds import Kind, list_of, number_kind, read_text
from lab.spec.reading import Value, clip_repr, did_you_mean
from lab.spec.scenario import Expect, Scenario

MOST_POINTS = 1_000_000
_POINTS = "a mapping from expectations, as verdicts call them, to points, such as {note sum: 3, check: 5}"
_FILE = "a file or folder next to the script, such as helper.py"
_FILES = "a list of files and folders next to the script, such as [helper.py, inputs]"


def list_expectations(expect: Expect) -> list[str]:
    """Return the names of the expectations in verdicts, in grading order: `exit`, `note sum`, `check`."""
    is_stated = {
        "log": expect.logs,
        **dict.fromkeys(expect.extra, True),
        "check": expect.check,
        "verdict": expect.verdict != "passed",
        "culprit": expect.culprit is not None,
        "restarts": expect.restarts is not None,
        "reason": expect.reason,
    }
    exits = ["exit"] if expect.verdict == "passed" or expect.exit else []
    return [*exits, *(f"note {name}" for name in expect.notes), *(what for what, stated in is_stated.items() if stated)]


def _points() -> Kind:
    """Return the kind of the key `points`: a mapping from expectations to points."""
    points_kind = number_kind(f"a number of points from 0 to {MOST_POINTS:,}", low=0, high=MOST_POINTS)

    def read(value: Value) -> dict[str, float]:
        known = list_expectations(value.reading.known.get("expect") or Expect())
        points = {}
        for name_value, item in value.pairs(_POINTS):
            with value.reading.attempt():
                if (name := name_value.as_key()) not in known:
                    what = f"found points for {clip_repr(name)}, which is not expected{did_you_mean(name, known)}"
                    raise name_value.problem(f"{what}; allowed: {', '.join(known)}")
                points[name] = points_kind.read(item)
        return points

    return Kind(_POINTS, read, {"type": "object", "additionalProperties": points_kind.schema}, dict)


def _read_file(value: Value) -> str:
    text = read_text(value, _FILE, quotable=False)
    if "script" not in value.reading.known:  # reported elsewhere
        return text
    folder: Path = value.reading.known["script"].parent
    path = resolve_inside(value, text, folder, _FILE)
    if not os.path.exists(path):
        raise value.refused(_FILE, ", which does not exist")
    for secret, what in _secrets(value):
        if path == secret or path in secret.parents:
            raise value.refused(_FILE, f", which is or holds {what}, and no submission may see that")
    return path.relative_to(folder).as_posix()


def _secrets(value: Value) -> list[tuple[Path, str]]:
    """Return the files that no submission may see, each with a description."""
    known = value.reading.known
    script, expect = known["script"], known.get("expect")
    secrets = [(script, "the script"), (Path(os.path.abspath(value.reading.path)), "the scenario")]
    if expect is not None and expect.check:
        secrets.append((script.parent / expect.check.partition(":")[0], "the check"))
    return secrets


_KIND_OF_FILES = list_of(Kind(_FILE, _read_file, {"type": "string", "minLength": 1}), _FILES)


class Grading(Frozen):
    """The points that `lab grade` gives, and the files that it adds to submissions."""

    points: Mapping[str, float] = key_field(dict, _points(), "points: {exit: 2}", "1 for each")
    """The points for each expectation, by its name in verdicts."""
    files: tuple[str, ...] = key_field((), _KIND_OF_FILES, "files: [helper.py]", "none")
    """Files and folders next to the script that each submission gets, and cannot replace.

    Nothing else of that folder is shipped: neither the scenario, nor its check, nor the script, which each submission
    replaces; see grading.
    """


class GradeKeys(Frozen):
    """The keys of scenarios that grading adds."""

    grade: Grading = key_field(Grading)
    """The points that `lab grade` gives, and the files that it adds to submissions."""


def scenario_grading(scenario: Scenario) -> Grading:
    """Return the key `grade` of a scenario."""
    return get_feature_values(scenario, GradeKeys).grade
