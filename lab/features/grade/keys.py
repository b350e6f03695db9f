"""What a scenario says of grading: how much each expectation is worth, and what a submission gets besides."""

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
_FILE = "a file or folder beside the script, such as helper.py"
_FILES = "a list of files and folders beside the script, such as [helper.py, inputs]"


def graded_of(expect: Expect) -> list[str]:
    """What is expected, as verdicts call it, in the order in which it is graded: `exit`, `note sum`, `check`."""
    whole = {
        "log": expect.logs,
        **dict.fromkeys(expect.extra, True),
        "check": expect.check,
        "verdict": expect.verdict != "passed",
        "culprit": expect.culprit is not None,
        "restarts": expect.restarts is not None,
        "reason": expect.reason,
    }
    ends = ["exit"] if expect.verdict == "passed" or expect.exit else []
    return [*ends, *(f"note {name}" for name in expect.notes), *(what for what, stated in whole.items() if stated)]


def _points() -> Kind:
    """Points by expectation."""
    worth = number_kind(f"a number of points from 0 to {MOST_POINTS:,}", low=0, high=MOST_POINTS)

    def read(value: Value) -> dict[str, float]:
        known = graded_of(value.reading.known.get("expect") or Expect())
        found = {}
        for name_value, item in value.pairs(_POINTS):
            with value.reading.attempt():
                name = name_value.as_key()
                if name not in known:
                    what = f"found points for {clip_repr(name)}, which is not expected{did_you_mean(name, known)}"
                    raise name_value.problem(f"{what}; allowed: {', '.join(known)}")
                found[name] = worth.read(item)
        return found

    return Kind(_POINTS, read, {"type": "object", "additionalProperties": worth.schema}, dict)


def _read_file(value: Value) -> str:
    text = read_text(value, _FILE, quotable=False)
    if "script" not in value.reading.known:  # a problem of its own
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
    """Files that no submission may see, each with what it is."""
    known = value.reading.known
    script, expect = known["script"], known.get("expect")
    secrets = [(script, "the script"), (Path(os.path.abspath(value.reading.path)), "the scenario")]
    if expect is not None and expect.check:
        secrets.append((script.parent / expect.check.partition(":")[0], "the check"))
    return secrets


_KIND_OF_FILES = list_of(Kind(_FILE, _read_file, {"type": "string", "minLength": 1}), _FILES)


class Grading(Frozen):
    """What `lab grade` gives for what, and what it gives to submissions."""

    points: Mapping[str, float] = key_field(dict, _points(), "points: {exit: 2}", "1 for each")
    """What each expectation is worth, by the name that verdicts give it."""
    files: tuple[str, ...] = key_field((), _KIND_OF_FILES, "files: [helper.py]", "none")
    """Files and folders beside the script that each submission gets, and cannot replace. Nothing else of that folder is
    shipped: neither the scenario nor its check, nor the script, in whose place each submission stands; see grading."""


class GradeKeys(Frozen):
    """The keys of scenarios that grading adds."""

    grade: Grading = key_field(Grading)
    """What `lab grade` gives for what, and what it gives to submissions."""


def grading_of(scenario: Scenario) -> Grading:
    """What a scenario says of grading."""
    return get_feature_values(scenario, GradeKeys).grade
