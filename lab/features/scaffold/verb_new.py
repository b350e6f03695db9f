"""`lab new`: a scenario and its script to start from, new ones or a copy of a lesson."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Mapping
from pathlib import Path

from lab.cli import arguments as shared
from lab.errors import UsageError
from lab.feature import bundled
from lab.spec.load import OWN_FOLDER, SCHEMA_FILE, find_lesson, open_scenario, schema_file
from lab.words import listing

_FOR_EDITORS = b"# yaml-language-server: $schema="
FIRST = "first"
"""Folder of the docs with the first scenario, script and test of somebody's repository; and their name."""


def new_scenario(name: str) -> dict[str, bytes]:
    """A scenario and its script: names of files -> contents."""
    file, folder = name.replace("-", "_"), bundled("docs") / FIRST
    scenario = (folder / f"{FIRST}.yaml").read_text().replace(f"name: {FIRST}", f"name: {name}")
    scenario = scenario.replace(f"script: {FIRST}.py", f"script: {file}.py")
    return {f"{file}.yaml": scenario.encode(), f"{file}.py": (folder / f"{FIRST}.py").read_bytes()}


def with_schema(files: Mapping[str, bytes], folder: Path) -> dict[str, bytes]:
    """The files of a scenario, itself first, which tells editors in its first line where its schema lies.

    That is added, unless it is there already, in the folder or in the one above.
    """
    found = next((up + SCHEMA_FILE for up in ("", "../") if (folder / up / SCHEMA_FILE).is_file()), None)
    name, scenario = next(iter(files.items()))
    lines = [line for line in scenario.splitlines(keepends=True) if not line.startswith(_FOR_EDITORS)]
    first = _FOR_EDITORS + (found or SCHEMA_FILE).encode() + b"\n"
    schema = {} if found else {SCHEMA_FILE: schema_file().read_bytes()}
    return {**files, name: first + b"".join(lines), **schema}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lab new NAME [--folder FOLDER] | lab new [NAME] --from LESSON [--folder FOLDER]"
    parser.add_argument(
        "name", nargs="?", help="its name: lower-case letters, digits, - and _ (default: that of the lesson)"
    )
    lesson = parser.add_argument("--from", dest="lesson", metavar="LESSON", help="copy a lesson, such as scatter")
    shared.completes(lesson, "lessons")
    parser.add_argument("--folder", type=Path, help="where to (default: scenarios if there is one, else here)")


def run(arguments: argparse.Namespace) -> int:
    """Write the files; nothing that is there is overwritten."""
    name, lesson = arguments.name, arguments.lesson
    if not (name or lesson):
        raise UsageError("a new scenario needs a name, or a lesson to begin with", "`lab new NAME`, or `--from LESSON`")
    if name and not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,62}", name):
        raise UsageError(f"{name!r} cannot name a scenario", "use lower-case letters, digits, - and _")
    folder = arguments.folder or (OWN_FOLDER if OWN_FOLDER.is_dir() else Path())
    texts = with_schema(_copied(find_lesson(lesson), name) if lesson else new_scenario(name), folder)
    own = list(texts)[:2]  # the scenario and its script; what these need may be there, from another lesson
    for file, text in texts.items():
        path = folder / file
        if path.exists() and (file in own or path.read_bytes() != text):
            raise UsageError(f"{path} is there already", "choose another name or --folder")
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        (folder / file).write_bytes(text)
    scenario = folder / next(iter(texts))
    print(f"wrote {listing(str(folder / file) for file in texts)}; try `lab run {scenario}`")
    return 0


def _copied(lesson: Path, name: str | None) -> dict[str, bytes]:
    """The files of a lesson: the scenario, under another name if there is one, its script, and what both need."""
    scenario = open_scenario(lesson)
    text = lesson.read_text(encoding="utf-8")
    if name:
        text = re.sub(r"(?m)^name:.*$", f"name: {name}", text, count=1)
    beside = scenario.script.parent
    needed = [scenario.script.name]
    if scenario.expect.check:
        needed.append(scenario.expect.check.partition(":")[0])
    for file in needed:  # grows while it is gone through
        needed += [each for each in _imported_files(beside, file) if each not in needed]
    file = f"{name.replace('-', '_')}.yaml" if name else lesson.name
    return {file: text.encode(), **{each: (beside / each).read_bytes() for each in needed}}


def _imported_files(folder: Path, file: str) -> list[str]:
    """Modules beside a script that it imports."""
    names = set()
    try:
        tree = ast.parse((folder / file).read_bytes())
    except (SyntaxError, ValueError):
        return []
    for part in ast.walk(tree):
        if isinstance(part, ast.Import):
            names |= {alias.name for alias in part.names}
        elif isinstance(part, ast.ImportFrom) and part.module:
            names.add(part.module)
    return sorted(f"{name}.py" for name in names if (folder / f"{name}.py").is_file())
