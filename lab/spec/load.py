"""From files and folders to a `Scenario`, or to an error that names every problem with its place; and back to YAML.

Two doors: a YAML file (`load_scenario`) and a plain script (`scenario_from_script`); `open_scenario` takes either.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from lab.errors import UsageError
from lab.spec.declare import dump_keys, read_keys
from lab.spec.kinds import slug
from lab.spec.lessons import SIGN, files_below, lessons, named_file
from lab.spec.paths import missing_script, script_problem
from lab.spec.reading import Position, Reading, Value
from lab.spec.requirements import merged
from lab.spec.scenario import Scenario

SCRIPT_TIMEOUT_S = 600.0
"""A plain script says nothing of how long it may take: longer than a scenario by default."""
_HEAD_BYTES = 1024 * 1024
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
    data["requirements"] = merged(_named_by(data["script"]), data.get("requirements", ()))
    return Scenario(**data)


def scenario_from_script(path: Path, timeout_s: float = Scenario.timeout_s) -> Scenario:
    """The scenario of a plain script: named after its file, everything else by default."""
    reading = Reading(Path(path))
    wrong = script_problem(Path(path))
    if wrong:
        reading.add(Position(), wrong)
    reading.raise_if_any()
    script, needed = Path(os.path.abspath(path)), _named_by(Path(path))
    return Scenario(name=slug(script.stem), script=script, timeout_s=timeout_s, requirements=needed)


def _named_by(script: Path) -> tuple[str, ...]:
    """The packages that a script names at its head; most name none."""
    try:
        with open(script, "rb") as file:
            if b"# /// script" not in file.read(_HEAD_BYTES):
                return ()
    except OSError:  # whoever ships it says why
        return ()
    from lab.spec.script_block import read_block

    return read_block(script)


def dump_scenario(scenario: Scenario) -> str:
    """The scenario as a file beside its script would say it, without what is at its default: what a record keeps."""
    import yaml

    dumper = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
    text: str = yaml.dump(dump_keys(scenario), Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text
