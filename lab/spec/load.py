"""From files and folders to a `Scenario`, or to an error that names every problem with its place; and back to YAML."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from lab.errors import UsageError
from lab.feature import bundled_path, find_hook
from lab.spec.declare import all_keys_of, dump_keys, read_keys
from lab.spec.keys import missing_script, script_problem
from lab.spec.kinds import make_slug
from lab.spec.reading import Position, Reading, Value, did_you_mean, find_near_match
from lab.spec.scenario import Scenario

SIGN = "@"
"""`@scatter`, in the place of a file, is the lesson of that name."""
OWN_FOLDER = Path("scenarios")
"""What the current folder calls its own scenarios."""
SCHEMA_FILE = "scenario.schema.json"
_SUFFIXES = (".yaml", ".yml")
_MOST_FILES = 20_000
"""YAML files below a folder; the largest repositories of YAML have fewer."""
_SCRIPT = rb"""(?m)^['"]?script['"]?[ \t]*:[ \t]+(?:'([^'\n]+)'|"([^"\n]+)"|([^\s'"#][^#\n]*))"""
_EXPECT = rb"""(?m)^['"]?expect['"]?[ \t]*:[ \t\r]*(?:[{#]|$)"""
_KEY = rb"""(?m)^['"]?([^\s#'"{\[-][^\n:'"]*?)['"]?[ \t]*:(?:\s|$)"""
_NEXT_DOCUMENT = rb"(?m)^(?:---|\.\.\.)(?:\s|$)"
_HEAD_BYTES = 65536
_SIZES = ("nodes", "nproc_per_node")
_NEAR = 0.8
"""Keys of others are not that like those of scenarios: `stage` is as like `trace` as many a slip of the pen."""


def library_folder() -> Path:
    """The lessons that come with the lab."""
    return bundled_path("scenarios")


def schema_file() -> Path:
    """The JSON Schema of scenarios: beside the lessons, so that they name it by the same path wherever they lie."""
    return library_folder() / SCHEMA_FILE


def files_below(folder: Path) -> list[Path]:
    """Every YAML file below a folder, in order, without those in hidden folders."""
    found = []
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(where, name) for name in files if name.endswith(_SUFFIXES) and not name.startswith(".")]
        if len(found) > _MOST_FILES:
            what = f"{folder} holds more than {_MOST_FILES:,} YAML files"
            raise UsageError(f"{what}, the most that are searched for scenarios", "name a folder with fewer, or files")
    return sorted(found)


def resolve_lesson(path: Path) -> Path:
    """What a person meant by a path: the file of the lesson where it is `@NAME`, else the path itself."""
    return find_lesson(str(path)) if str(path).startswith(SIGN) and not path.suffix else path


def read_head(path: Path, most_bytes: int) -> bytes:
    """The first bytes of a regular file; none of anything else, or where it cannot be read. It never waits."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY), "rb") as file:
            return file.read(most_bytes) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except (OSError, ValueError):
        return b""


_HEAD = 1000
"""Bytes of a file in which it says its name."""


def lesson_folders() -> list[Path]:
    """Where a lesson is looked for, in this order."""
    library = library_folder()
    if not OWN_FOLDER.is_dir():
        return [library]
    return [OWN_FOLDER] if os.path.samefile(OWN_FOLDER, library) else [OWN_FOLDER, library]


def list_lessons(folders: Sequence[Path] | None = None) -> dict[str, list[Path]]:
    """Name -> files of that name, in the first of the folders that has one; by default those of `lesson_folders`."""
    found: dict[str, list[Path]] = {}
    for folder in lesson_folders() if folders is None else folders:
        here: dict[str, list[Path]] = {}
        for file in files_below(folder):
            here.setdefault(file.stem.replace("-", "_"), []).append(file)
        found = {**here, **found}
    return found


def find_lesson(name: str, folders: Sequence[Path] | None = None) -> Path:
    """The file of a lesson.

    Args:
        name: that of the file or the one that stands in it, such as `scatter` or `@scatter`; - and _ are the same.
        folders: where to look; None: see `lesson_folders`.

    Raises:
        UsageError: there is none of that name, or several; the message names near matches.
    """
    known = list_lessons(folders)
    plain = name.removeprefix(SIGN)
    wanted = plain.replace("-", "_")
    files = known.get(wanted) or [file for file in chain(*known.values()) if _says_its_name_is(file, wanted)]
    if len(files) > 1:
        raise UsageError(f"{plain!r} could be {' or '.join(map(str, files))}", "name the file")
    if not files:
        where = f" in {' or '.join(map(str, folders))}" if folders else ""
        meant = did_you_mean(plain, known)
        raise UsageError(f"there is no lesson {plain!r}{where}{meant}", "`lab scenarios` lists them")
    return files[0]


def _says_its_name_is(file: Path, name: str) -> bool:
    head = read_head(file, _HEAD).decode("utf-8", "replace")
    said = re.search(r"^name: *([\w-]+)", head, re.MULTILINE)
    return said is not None and said[1].replace("-", "_") == name


def is_scenario_file(path: Path) -> bool:
    """Whether a YAML file is meant for a scenario.

    It is if it names a script that is there. One that is not there, or has another name, is a slip of the pen only
    among keys that scenarios have: files of others have a `script:` or an `expect:`, too.
    """
    head = read_head(path, _HEAD_BYTES)
    head = next((part for part in re.split(_NEXT_DOCUMENT, head) if re.search(_KEY, part)), b"")
    found, expects = re.search(_SCRIPT, head), re.search(_EXPECT, head) is not None
    if found is None:
        return expects and _has_keys_of_scenarios(head, "script", *_SIZES)
    name = (found[1] or found[2] or found[3]).decode("utf-8", "replace").strip()
    if (path.parent / name).is_file():
        return True
    is_script = name.endswith(".py") and not any(map(str.isspace, name))
    return (is_script or expects) and _has_keys_of_scenarios(head, "script")


def _has_keys_of_scenarios(head: bytes, *one_of: str) -> bool:
    """Whether all keys at the top level are those of a scenario, or nearly; and one of these is among them."""
    known, keys = all_keys_of(Scenario), re.findall(_KEY, head)
    if len(keys) > 2 * len(known):
        return False
    meant = {find_near_match(key.decode("utf-8", "replace"), known, _NEAR) for key in keys}
    return None not in meant and not meant.isdisjoint(one_of)


KEY = "requirements"
"""The key of scenarios that names them."""
_SCRIPT_HEAD_BYTES = 1024 * 1024


def read_requirements(how: str, *of: Any) -> tuple[str, ...]:
    """Packages in the order of their names, as the feature that knows about them reads them.

    Args:
        how: a hook: `merged_requirements` of lists, of which the last counts; `checked_requirements` of texts in
            Python; `requirements_in` a file of pip's format; `requirements_of_script` at its head (PEP 723).
        of: what that takes.

    Raises:
        UsageError: a text is none, or the feature is not there.
        ScenarioError: a line of a file is none; the message names every such line.
    """
    reader = find_hook(how)
    if reader is None:
        raise UsageError("packages are of the feature packages, which is not there")
    found: tuple[str, ...] = reader(*of)
    return found


def merge_requirements(*lists: Sequence[str]) -> tuple[str, ...]:
    """All of them; most runs have none, and need nobody to read them."""
    given = [one for one in lists if one]
    return read_requirements("merged_requirements", *given) if len(given) > 1 else tuple(*given)


SCRIPT_TIMEOUT_S = 600.0
"""A plain script says nothing of how long it may take: longer than a scenario by default."""
_MOST_SCENARIOS = 2000
"""In one folder that a command names."""


def find_scenarios(paths: Iterable[Path]) -> list[Path]:
    """Every file and `@LESSON` that is named, and every scenario below the folders that are named, in order."""
    found: list[Path] = []
    for path in map(resolve_lesson, paths):
        if path.is_dir():
            inside = list(islice(filter(is_scenario_file, files_below(path)), _MOST_SCENARIOS + 1))
            if len(inside) > _MOST_SCENARIOS:
                what = f"{path} holds more than {_MOST_SCENARIOS:,} scenarios, the most for one command"
                raise UsageError(what, "name folders below it, or files")
            if not inside:
                raise UsageError(f"{path} holds no scenarios", "a scenario is a file NAME.yaml; see `lab scenarios`")
            found.extend(inside)
        else:
            if not (path.suffix or path.exists()) and str(path).replace("-", "_") in list_lessons():
                raise UsageError(f"there is no file {path}", f"the lesson of that name is {SIGN}{path}")
            found.append(path)
    return list(dict.fromkeys(found))


def open_scenario(path: Path) -> Scenario:
    """The scenario in a YAML file, that of a plain script, or with `@NAME` that of a lesson."""
    path = resolve_lesson(path)
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
        data = {"name": make_slug(path.stem), "source": source, **read_keys(root, Scenario)}
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
    return Scenario(name=make_slug(script.stem), script=script, timeout_s=timeout_s, extra=extra)


def _with_named_by(script: Path, extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the keys of features say, with the packages that the script names at its head."""
    try:
        with open(script, "rb") as file:
            names_any = b"# /// script" in file.read(_SCRIPT_HEAD_BYTES)
    except OSError:  # whoever ships it says why
        names_any = False
    named = read_requirements("requirements_of_script", script) if names_any else ()
    return {**extra, KEY: merge_requirements(named, extra.get(KEY, ()))} if named else extra


def dump_scenario(scenario: Scenario) -> str:
    """The scenario as a file beside its script would say it, without what is at its default: what a record keeps."""
    import yaml

    dumper = yaml.CSafeDumper if yaml.__with_libyaml__ else yaml.SafeDumper
    text: str = yaml.dump(dump_keys(scenario), Dumper=dumper, sort_keys=False, allow_unicode=True)
    return text
