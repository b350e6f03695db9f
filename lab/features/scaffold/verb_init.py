"""`lab init`: a first scenario, test and CI workflow in somebody's own repository."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from lab.cli import arguments as shared
from lab.cli.arguments import answer
from lab.errors import UsageError
from lab.feature import bundled
from lab.features.scaffold.verb_new import FIRST, new_scenario, with_schema
from lab.report.style import Style
from lab.spec.load import OWN_FOLDER

_GITHUB = Path(".github/workflows/lab.yml")
_GITLAB = Path(".gitlab-ci.yml")
_IGNORED = Path(".gitignore")
_RECORDS = ".lab/"
"""What git is told to leave alone: the records of runs."""
_HOWTO = """`lab new` adds another scenario, or a copy of a lesson, where there is one already."""


class Written(NamedTuple):
    """A file of the list that is printed."""

    path: Path
    done: str
    """`wrote`, `overwrote` or `kept`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _HOWTO
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="the repository (default: this folder)")
    parser.add_argument("--github", action="store_true", help=f"a workflow for GitHub Actions: {_GITHUB} (default)")
    parser.add_argument("--gitlab", action="store_true", help=f"a pipeline for GitLab: {_GITLAB}")
    parser.add_argument("--force", action="store_true", help="overwrite what is there")
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, and write nothing")
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write what is not there yet, and say what was."""
    folder: Path = arguments.folder
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder", "name the folder of a repository")
    gitlab = arguments.gitlab or (not arguments.github and (folder / _GITLAB).exists())
    scenario = with_schema(new_scenario(FIRST), folder / OWN_FOLDER)
    files = {OWN_FOLDER / name: text for name, text in scenario.items()}
    bundles = {Path("tests/test_distributed.py"): f"{FIRST}/test_distributed.py"}
    if arguments.github or not gitlab:
        bundles[_GITHUB] = "ci/github.yml"
    if gitlab:
        bundles[_GITLAB] = "ci/gitlab.yml"
    files |= {path: (bundled("docs") / name).read_bytes() for path, name in bundles.items()}
    done = [_put(folder / path, text, arguments, force=arguments.force) for path, text in files.items()]
    done.append(_put(folder / _IGNORED, f"{_RECORDS}\n".encode(), arguments, force=False))
    return answer(
        arguments,
        lambda: [{"path": str(one.path), "done": one.done} for one in done],
        lambda style: _told(done, arguments, style),
    )


def _put(path: Path, text: bytes, arguments: argparse.Namespace, *, force: bool) -> Written:
    there = path.exists() or path.is_symlink()
    if there and not force:
        return Written(path, "kept")
    if not arguments.dry_run:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}", "name a folder of yours") from error
    return Written(path, "overwrote" if there else "wrote")


def _told(done: list[Written], arguments: argparse.Namespace, style: Style) -> str:
    colours = {"kept": "yellow", "wrote": "green", "overwrote": "red"}
    lines = [f"{style.paint(f'{one.done:<9}', colours[one.done])} {one.path}" for one in done]
    if any(one.done == "kept" for one in done):
        lines.append(f"what is kept was there already; --force overwrites it, but not {_IGNORED}")
    ignored = arguments.folder / _IGNORED
    is_kept = Written(ignored, "kept") in done and ignored.is_file()
    if is_kept and _RECORDS not in ignored.read_text(encoding="utf-8", errors="replace"):
        lines.append(f"add {_RECORDS} to {ignored}: runs leave their records there")
    where = "" if arguments.folder == Path() else f"cd {arguments.folder}; "
    following = f"next: {where}lab test {OWN_FOLDER}, then pytest; `lab help ci` says more"
    return "\n".join([*lines, "nothing was written: this was a dry run" if arguments.dry_run else following])
