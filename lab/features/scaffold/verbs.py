"""`lab init`, `lab new`, `lab schema`: write a first scenario, a test, a workflow, and a schema for editors."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from modulefinder import ModuleFinder
from pathlib import Path

from lab.cli import arguments as shared
from lab.cli.call import Command
from lab.errors import UsageError
from lab.feature import bundled_path
from lab.report.style import Style
from lab.spec.load import OWN_FOLDER, SCHEMA_FILE, find_lesson, open_scenario, schema_file
from lab.words import join_words

_FOR_EDITORS = b"# yaml-language-server: $schema="
_EXERCISE = "exercise"
"""The folder of the docs with an exercise, and the name of its scenario."""
_FIRST = "first"
"""The folder of the docs with the first scenario, script, and test of a repository; and the name of that scenario."""


def new_scenario(name: str, template: str = _FIRST) -> dict[str, bytes]:
    """Return the files of a template under a new name, the scenario first: file names -> contents."""
    file, texts = name.replace("-", "_"), dict[str, bytes]()
    paths = (bundled_path("docs") / template).glob(f"*{template}*.*")
    for path in sorted(paths, key=lambda path: (path.suffix != ".yaml", path)):
        text = path.read_text(encoding="utf-8").replace(f"name: {template}\n", f"name: {name}\n")
        text = re.sub(rf"\b{template}(?=\.py|\.yaml|_)", file, text)
        texts[path.name.replace(template, file)] = text.encode()
    return texts


def with_schema(files: Mapping[str, bytes], folder: Path) -> dict[str, bytes]:
    """Add to a scenario, the first file, the line that tells editors where its schema is.

    Add the schema too, unless it is in the folder or in the parent folder.
    """
    schema_path = next((up + SCHEMA_FILE for up in ("", "../") if (folder / up / SCHEMA_FILE).is_file()), None)
    name, scenario = next(iter(files.items()))
    lines = [line for line in scenario.splitlines(keepends=True) if not line.startswith(_FOR_EDITORS)]
    first = _FOR_EDITORS + (schema_path or SCHEMA_FILE).encode() + b"\n"
    schema = {} if schema_path else {SCHEMA_FILE: schema_file().read_bytes()}
    return {**files, name: first + b"".join(lines), **schema}


def _add_new_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lab new NAME [--exercise] [--folder FOLDER] | lab new [NAME] --from LESSON"
    about = "name of the scenario: lower-case letters, digits, -, and _ (default: name of the lesson)"
    parser.add_argument("name", nargs="?", help=about)
    about = "copy a lesson, such as scatter"
    shared.add_options(parser, "--from", dest="lesson", metavar="LESSON", help=about, complete="lessons")
    about = "also write a script for students, a check, and a test of the exercise itself"
    parser.add_argument("--exercise", action="store_true", help=about)
    parser.add_argument("--folder", type=Path, help="target folder (default: scenarios if it exists, else this folder)")


def _new(arguments: argparse.Namespace) -> int:
    """Write the files, without overwriting any."""
    name, lesson = arguments.name, arguments.lesson
    if not (name or lesson):
        raise UsageError("a new scenario needs a name, or a lesson to copy", "`lab new NAME`, or `--from LESSON`")
    if name and not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,62}", name):
        raise UsageError(f"{name!r} is not a valid scenario name", "use lower-case letters, digits, -, and _")
    folder = arguments.folder or (OWN_FOLDER if OWN_FOLDER.is_dir() else Path())
    if lesson and arguments.exercise:
        raise UsageError("--exercise and --from cannot be combined", "leave one of them out")
    template = _EXERCISE if arguments.exercise else _FIRST
    written = _copied(find_lesson(lesson), name) if lesson else new_scenario(name, template)
    texts = with_schema(written, folder)
    # scenario and script; imports of a lesson can exist from another one
    own = list(written)[: None if arguments.exercise else 2]
    for file, text in texts.items():
        path = folder / file
        if path.exists() and (file in own or path.read_bytes() != text):
            raise UsageError(f"{path} exists", "choose another name or --folder")
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        (folder / file).write_bytes(text)
    print(f"wrote {join_words(str(folder / file) for file in texts)}; try `lab run {folder / own[0]}`")
    return 0


def _copied(lesson: Path, name: str | None) -> dict[str, bytes]:
    """Return the files of a lesson: the scenario, renamed if there is a name, its script, and what these import."""
    scenario = open_scenario(lesson)
    text = lesson.read_text(encoding="utf-8")
    if name:
        text = re.sub(r"(?m)^name:.*$", f"name: {name}", text, count=1)
    folder, check = scenario.script.parent, scenario.expect.check
    own, finder = [scenario.script.name, *([check.partition(":")[0]] if check else [])], ModuleFinder([str(folder)])
    for each in own:
        finder.run_script(str(folder / each))
    files = (getattr(module, "__file__", None) for module in finder.modules.values())
    imported = sorted(Path(each).name for each in files if each)
    file = f"{name.replace('-', '_')}.yaml" if name else lesson.name
    return {file: text.encode(), **{each: (folder / each).read_bytes() for each in (*own, *imported)}}


_GITHUB = Path(".github/workflows/lab.yml")
_GITLAB = Path(".gitlab-ci.yml")
_IGNORED = Path(".gitignore")
_RECORDS = ".lab/"
"""The line for git's ignore file: the records of runs."""


def _add_init_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "`lab new` adds another scenario, or a copy of a lesson."
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="the repository (default: this folder)")
    parser.add_argument("--github", action="store_true", help=f"write a GitHub Actions workflow: {_GITHUB} (default)")
    parser.add_argument("--gitlab", action="store_true", help=f"write a GitLab pipeline: {_GITLAB}")
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    parser.add_argument("--dry-run", action="store_true", help="list the files, and write nothing")
    shared.add_options(parser, "--json")


def _init(arguments: argparse.Namespace) -> int:
    """Write the missing files, and list them."""
    folder: Path = arguments.folder
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", "name the folder of a repository")
    gitlab = arguments.gitlab or (not arguments.github and (folder / _GITLAB).exists())
    files = {OWN_FOLDER / name: text for name, text in with_schema(new_scenario(_FIRST), folder / OWN_FOLDER).items()}
    bundles = {Path("tests/test_distributed.py"): f"{_FIRST}/test_distributed.py"}
    if arguments.github or not gitlab:
        bundles[_GITHUB] = "ci/github.yml"
    if gitlab:
        bundles[_GITLAB] = "ci/gitlab.yml"
    files |= {path: (bundled_path("docs") / name).read_bytes() for path, name in bundles.items()}
    files[_IGNORED] = f"{_RECORDS}\n".encode()
    done = {folder / path: _put(folder / path, text, arguments) for path, text in files.items()}
    data = [{"path": str(path), "done": what} for path, what in done.items()]
    return shared.print_answer(arguments, data, lambda style: _init_text(done, arguments, style))


def _put(path: Path, text: bytes, arguments: argparse.Namespace) -> str:
    """Write a file; return `wrote`, `overwrote`, or `kept`."""
    there = path.exists() or path.is_symlink()
    if there and (path.name == _IGNORED.name or not arguments.force):
        return "kept"
    if not arguments.dry_run:
        with UsageError.on_os_error(f"cannot write {path}", "name a folder that you can write"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
    return "overwrote" if there else "wrote"


def _init_text(done: Mapping[Path, str], arguments: argparse.Namespace, style: Style) -> str:
    colours = {"kept": "yellow", "wrote": "green", "overwrote": "red"}
    lines = [f"{style.paint(f'{what:<9}', colours[what])} {path}" for path, what in done.items()]
    if "kept" in done.values():
        lines.append(f"kept files exist already; --force overwrites them, but not {_IGNORED}")
    ignored = arguments.folder / _IGNORED
    if done[ignored] == "kept" and ignored.is_file() and _RECORDS not in ignored.read_text("utf-8", "replace"):
        lines.append(f"add {_RECORDS} to {ignored}: runs write their records there")
    where = "" if arguments.folder == Path() else f"cd {arguments.folder}; "
    following = f"next: {where}lab test {OWN_FOLDER}, then pytest; `lab help ci` says more"
    return "\n".join([*lines, "nothing was written: this was a dry run" if arguments.dry_run else following])


_EDITORS = """Examples:
  lab schema > scenarios/scenario.schema.json     next to your scenarios, each of which begins with the line
                                                  # yaml-language-server: $schema=scenario.schema.json

`lab init` and `lab new` write both. `lab help editor` says more."""


def _add_schema_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EDITORS


def _schema(_: argparse.Namespace) -> int:
    """Print the schema."""
    print(schema_file().read_text(encoding="utf-8").rstrip("\n"))
    return 0


NEW = Command(_add_new_arguments, _new)
INIT = Command(_add_init_arguments, _init)
SCHEMA = Command(_add_schema_arguments, _schema)
