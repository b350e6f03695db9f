"""`lab new`: a scenario and its script to start from, new ones or a copy of a lesson."""

from __future__ import annotations

import argparse
import ast
import re
from pathlib import Path

from lab.cli import arguments as shared
from lab.errors import UsageError
from lab.features.scaffold.first_files import new_scenario, with_schema
from lab.spec.load import OWN_FOLDER, find_lesson, open_scenario
from lab.words import listing


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
