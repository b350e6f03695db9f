"""From files and folders to a `Scenario`, or to an error that names every problem with its place; and back to YAML.

Two doors: a YAML file (`load_scenario`) and a plain script (`scenario_from_script`); `open_scenario` takes either.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from lab.errors import UsageError
from lab.spec.declare import dump_keys, read_keys
from lab.spec.kinds import slug
from lab.spec.lessons import SIGN, files_below, lessons, named_file
from lab.spec.packages import KEY, merged, named_by
from lab.spec.paths import missing_script, script_problem
from lab.spec.reading import Position, Reading, Value
from lab.spec.scenario import Scenario

SCRIPT_TIMEOUT_S = 600.0
"""A plain script says nothing of how long it may take: longer than a scenario by default."""
_MOST_SCENARIOS = 2000
"""In one folder that a command names."""


def find_scenarios(paths: Iterable[Path]) -> list[Path]:
    """Every file and `@LESSON` that is named, and every scenario below the folders that are named, in order."""
    found: list[Path] = []
    for path in map(named_file, paths):
        if path.is_dir():
            from lab.spec.lessons import looks_like_one

            inside = list(islice(filter(looks_like_one, files_below(path)), _MOST_SCENARIOS + 1))
            if len(inside) > _MOST_SCENARIOS:
                what = f"{path} holds more than {_MOST_SCENARIOS:,} scenarios, the most for one command"
                raise UsageError(what, "name folders below it, or files")
            if not inside:
                raise UsageError(f"{path} holds no scenarios", "a scenario is a file NAME.yaml; see `lab scenarios`")
            found.extend(inside)
        elif not path.suffix and not path.exists() and str(path).replace("-", "_") in lessons():
            raise UsageError(f"there is no file {path}", f"the lesson of that name is {SIGN}{path}")
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def open_scenario(path: Path) -> Scenario:
    """The scenario in a YAML file, that of a plain script, or with `@NAME` that of a lesson."""
    path = named_file(path)
    return scenario_from_script(path, SCRIPT_TIMEOUT_S) if path.suffix == ".py" else load_scenario(path)


def load_scenario(path: Path) -> Scenario:
    """The scenario in a YAML file, with absolute paths; in the file they are relative to its folder.

    A `ScenarioError` has one line a problem, in the file's order: `path:line:column: field: found ...; allowed: ...`.
    """
    from lab.spec.document import read_document  # imports yaml, which a plain script does not need

    path = Path(path)
    source = Path(os.path.abspath(path))
    reading = Reading(path)
    with reading.attempt():
        root = Value(read_document(path), "", reading)
        data = {"name": slug(path.stem), "source": source, **read_keys(root, Scenario)}
        if all(name.raw != "script" for name, _ in root.pairs("")):
            raise root.problem(missing_script(source))
    reading.raise_if_any()
    data["extra"] = _with_named_by(data["script"], data.get("extra", {}))
    return Scenario(**data)


def scenario_from_script(path: Path, timeout_s: float = Scenario.timeout_s) -> Scenario:
    """The scenario of a plain script: named after its file, everything else by default."""
    reading = Reading(Path(path))
    wrong = script_problem(Path(path))
    if wrong:
        reading.add(Position(), wrong)
    reading.raise_if_any()
    script, extra = Path(os.path.abspath(path)), _with_named_by(Path(path), {})
    return Scenario(name=slug(script.stem), script=script, timeout_s=timeout_s, extra=extra)


def _with_named_by(script: Path, extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the keys of features say, with the packages that the script names at its head."""
    named = named_by(script)
    return {**extra, KEY: merged(named, extra.get(KEY, ()))} if named else extra


def dump_scenario(scenario: Scenario) -> str:
    """The scenario as a file beside its script would say it, without what is at its default: what a record keeps."""
    import yaml

    dumper = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
    text: str = yaml.dump(dump_keys(scenario), Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text
