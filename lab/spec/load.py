"""Load files and folders into a `Scenario`, or raise an error with each problem and its position; write YAML back."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

from lab.errors import UsageError
from lab.feature import bundled_path, find_hook
from lab.spec.declare import all_keys_of, dump_keys, read_keys
from lab.spec.keys import missing_script, script_problem
from lab.spec.kinds import make_slug
from lab.spec.reading import Position, Reading, Value, did_you_mean, find_near_match
from lab.spec.scenario import Scenario
from lab.words import group_pairs

SIGN = "@"
"""`@scatter`, instead of a file, names the lesson `scatter`."""
OWN_FOLDER = Path("scenarios")
"""The folder with a project's own scenarios."""
SCHEMA_FILE = "scenario.schema.json"
_SUFFIXES = (".yaml", ".yml")
_MOST_FILES = 20_000
"""Most YAML files below a folder; the largest repositories of YAML have fewer."""
_SCRIPT = rb"""(?m)^['"]?script['"]?[ \t]*:[ \t]+(?:'([^'\n]+)'|"([^"\n]+)"|([^\s'"#][^#\n]*))"""
_EXPECT = rb"""(?m)^['"]?expect['"]?[ \t]*:[ \t\r]*(?:[{#]|$)"""
_KEY = rb"""(?m)^['"]?([^\s#'"{\[-][^\n:'"]*?)['"]?[ \t]*:(?:\s|$)"""
_NEXT_DOCUMENT = rb"(?m)^(?:---|\.\.\.)(?:\s|$)"
_HEAD_BYTES = 65536
_SIZES = ("nodes", "nproc_per_node")
_NEAR = 0.8
"""Required likeness. At 0.6, `stage` in other tools' files would match `trace`."""


def library_folder() -> Path:
    """Return the folder of the lessons that come with the lab."""
    return bundled_path("scenarios")


def schema_file() -> Path:
    """Return the JSON Schema of scenarios, which is next to the lessons so that its relative path never changes."""
    return library_folder() / SCHEMA_FILE


def files_below(folder: Path) -> list[Path]:
    """List each YAML file below a folder, in order, except those in hidden folders."""
    paths = []
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [Path(where, name) for name in files if name.endswith(_SUFFIXES) and not name.startswith(".")]
        if len(paths) > _MOST_FILES:
            what = f"{folder} holds more than {_MOST_FILES:,} YAML files"
            raise UsageError(f"{what}, the most that the lab searches", "name a folder with fewer, or files")
    return sorted(paths)


def resolve_lesson(path: Path) -> Path:
    """Return the file of the lesson if the path is `@NAME`, else the path itself."""
    return find_lesson(str(path)) if str(path).startswith(SIGN) and not path.suffix else path


def read_head(path: Path, most_bytes: int) -> bytes:
    """Read the first bytes of a regular file without blocking; return none if it is no such file or unreadable."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "rb") as file:
            return file.read(most_bytes) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except (OSError, ValueError):
        return b""


_HEAD = 1000
"""Bytes of a file that are searched for its name."""


def lesson_folders() -> list[Path]:
    """Return the folders that are searched for lessons, in order."""
    library = library_folder()
    if not OWN_FOLDER.is_dir():
        return [library]
    return [OWN_FOLDER] if os.path.samefile(OWN_FOLDER, library) else [OWN_FOLDER, library]


def list_lessons() -> dict[str, list[Path]]:
    """Return the files of each lesson by name, from the first of `lesson_folders` that has it."""
    lessons: dict[str, list[Path]] = {}
    for folder in lesson_folders():
        lessons = {**group_pairs((file.stem.replace("-", "_"), file) for file in files_below(folder)), **lessons}
    return lessons


def find_lesson(name: str) -> Path:
    """Return the file of a lesson.

    Args:
        name: name of the file or the name in it, such as `scatter` or `@scatter`; - and _ are the same.

    Raises:
        UsageError: no lesson or several lessons have that name; the message names near matches.
    """
    known = list_lessons()
    plain = name.removeprefix(SIGN)
    wanted = plain.replace("-", "_")
    files = known.get(wanted) or [file for file in chain(*known.values()) if _has_name(file, wanted)]
    if len(files) > 1:
        raise UsageError(f"{plain!r} could be {' or '.join(map(str, files))}", "name the file")
    if not files:
        raise UsageError(f"there is no lesson {plain!r}{did_you_mean(plain, known)}", "`lab scenarios` lists them")
    return files[0]


def _has_name(file: Path, name: str) -> bool:
    match = re.search(r"^name: *([\w-]+)", read_head(file, _HEAD).decode("utf-8", "replace"), re.MULTILINE)
    return match is not None and match[1].replace("-", "_") == name


def is_scenario_file(path: Path) -> bool:
    """Return whether a YAML file is meant as a scenario.

    It is one if it names an existing script. If the script does not exist, the file is a scenario only if its keys are
    scenario keys, because files of other tools also have a `script:` or an `expect:`.
    """
    head = read_head(path, _HEAD_BYTES)
    head = next((part for part in re.split(_NEXT_DOCUMENT, head) if re.search(_KEY, part)), b"")
    match, expects = re.search(_SCRIPT, head), re.search(_EXPECT, head) is not None
    if match is None:
        return (expects or len(re.findall(_KEY, head)) > 1) and _has_keys_of_scenarios(head, "script", *_SIZES)
    name = (match[1] or match[2] or match[3]).decode("utf-8", "replace").strip()
    if (path.parent / name).is_file():
        return True
    is_script = name.endswith(".py") and not any(map(str.isspace, name))
    return (is_script or expects) and _has_keys_of_scenarios(head, "script")


def _has_keys_of_scenarios(head: bytes, *one_of: str) -> bool:
    """Return whether all top-level keys are, nearly, scenario keys, and one of these is among them."""
    known, keys = all_keys_of(Scenario), re.findall(_KEY, head)
    if len(keys) > 2 * len(known):
        return False
    meant = {find_near_match(key.decode("utf-8", "replace"), known, _NEAR) for key in keys}
    return None not in meant and not meant.isdisjoint(one_of)


KEY = "requirements"
"""The scenario key that lists packages."""
_SCRIPT_HEAD_BYTES = 1024 * 1024


def read_requirements(hook_name: str, *arguments: Any) -> tuple[str, ...]:
    """Read packages, in the order of their names, with a hook of the feature `packages`.

    Args:
        hook_name: `merged_requirements` for lists, of which the last counts; `checked_requirements` for texts in
            Python; `requirements_in` for a file in pip's format; `requirements_of_script` for the head of a script
            (PEP 723).
        arguments: arguments of the hook.

    Raises:
        UsageError: a text is not a requirement, or the feature is missing.
        ScenarioError: a line of a file is not a requirement; the message names each such line.
    """
    if (reader := find_hook(hook_name)) is None:
        raise UsageError("packages need the feature packages, which is missing")
    return cast("tuple[str, ...]", reader(*arguments))


def merge_requirements(*lists: Sequence[str]) -> tuple[str, ...]:
    """Merge lists of packages, without importing the feature in the common case of one list or none."""
    nonempty = [one for one in lists if one]
    return read_requirements("merged_requirements", *nonempty) if len(nonempty) > 1 else tuple(*nonempty)


SCRIPT_TIMEOUT_S = 600.0
"""A plain script does not declare how long it takes, so its default is longer than a scenario's."""
_MOST_SCENARIOS = 2000
"""In one folder that a command names."""


def find_scenarios(paths: Iterable[Path]) -> list[Path]:
    """List each named file and `@LESSON`, and each scenario below the named folders, in order."""
    scenario_paths: list[Path] = []
    for path in map(resolve_lesson, paths):
        if path.is_dir():
            inside = list(islice(filter(is_scenario_file, files_below(path)), _MOST_SCENARIOS + 1))
            if len(inside) > _MOST_SCENARIOS:
                what = f"{path} holds more than {_MOST_SCENARIOS:,} scenarios, the most for one command"
                raise UsageError(what, "name folders below it, or files")
            if not inside:
                raise UsageError(f"{path} holds no scenarios", "a scenario is a file NAME.yaml; see `lab scenarios`")
            scenario_paths.extend(inside)
        else:
            is_name, name = not (path.suffix or path.exists()), str(path).replace("-", "_")
            if is_name and (lesson := find_near_match(name, list_lessons())):
                raise UsageError(f"there is no file {path}", f"did you mean the lesson {SIGN}{lesson}?")
            scenario_paths.append(path)
    return list(dict.fromkeys(scenario_paths))


def open_scenario(path: Path) -> Scenario:
    """Load the scenario in a YAML file, of a plain script, or of the lesson `@NAME`."""
    path = resolve_lesson(path)
    return scenario_from_script(path, SCRIPT_TIMEOUT_S) if path.suffix == ".py" else load_scenario(path)


def load_scenario(path: Path) -> Scenario:
    """Load the scenario in a YAML file; paths in it are relative to its folder and become absolute.

    Raises:
        ScenarioError: one line for each problem, in the order of the file:
            `path:line:column: field: found ...; allowed: ...`.
    """
    from lab.spec.document import read_document  # imports yaml, which a plain script does not need

    path = Path(path)
    source = Path(os.path.abspath(path))
    reading = Reading(path)
    with reading.attempt():
        root = Value(read_document(path), "", reading)
        data = {"name": make_slug(path.stem), "source": source, **read_keys(root, Scenario)}
        if all(name.raw != "script" for name, _ in root.pairs("")):
            raise root.problem(missing_script(source))
    reading.raise_if_any()
    data["extra"] = _add_script_requirements(data["script"], data.get("extra", {}))
    return Scenario(**data)


def scenario_from_script(path: Path, timeout_s: float = Scenario.timeout_s) -> Scenario:
    """Make the scenario of a plain script, with its name and defaults."""
    reading = Reading(Path(path))
    if problem := script_problem(Path(path)):
        reading.add(Position(), problem)
    reading.raise_if_any()
    script, extra = Path(os.path.abspath(path)), _add_script_requirements(Path(path), {})
    return Scenario(name=make_slug(script.stem), script=script, timeout_s=timeout_s, extra=extra)


def _add_script_requirements(script: Path, extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the packages that the script's head names to the values of features' keys."""
    try:
        with open(script, "rb") as file:
            names_any = b"# /// script" in file.read(_SCRIPT_HEAD_BYTES)
    except OSError:  # shipping the script reports why
        names_any = False
    named = read_requirements("requirements_of_script", script) if names_any else ()
    return {**extra, KEY: merge_requirements(named, extra.get(KEY, ()))} if named else extra


def dump_scenario(scenario: Scenario) -> str:
    """Write the scenario as YAML, without keys at their default, for the record."""
    keys = {**dump_keys(scenario), "script": scenario.script_path}  # where the record has it
    if all(isinstance(value, str) and value.isascii() and value.isprintable() for value in keys.values()):
        return "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items())  # yaml takes 9 ms to import
    import yaml

    dumper = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
    return yaml.dump(keys, Dumper=dumper, sort_keys=False, allow_unicode=True)
