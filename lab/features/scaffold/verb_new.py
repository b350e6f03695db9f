"""`lab new`: a scenario and its script to start from, new ones or a copy of a lesson."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Mapping
from pathlib import Path

from lab.cli import arguments as shared
from lab.errors import UsageError
from lab.spec.load import OWN_FOLDER, SCHEMA_FILE, find_lesson, open_scenario, schema_file
from lab.words import listing

_FOR_EDITORS = b"# yaml-language-server: $schema="
_SCENARIO = """\
name: {name}
learn: Every rank adds its number to a sum that all of them then hold.
predict:
  ask: What does each rank hold after the call?
  answer: {{note: total}}
nodes: 3
script: {file}.py
timeout: 60s
expect:
  notes:
    total: sum(range(world_size))
"""
_SCRIPT = '''\
"""Say here, in a sentence or two, what this shows."""

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    total = torch.tensor([rank])
    dist.all_reduce(total)  # SUM is the default
    print(f"rank {rank} of {dist.get_world_size()}: the sum of all ranks is {total.item()}")
    note("total", total.item())

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
'''


TEST = '''\
"""Tests that run on every rank of real nodes. `lab help pytest` says more."""

import lab


@lab.distributed(nodes=3)
def test_every_rank_gets_the_sum_of_all(rank, world_size):
    import torch  # here, so that only the nodes need it
    import torch.distributed as dist

    total = torch.tensor([rank])
    dist.all_reduce(total)
    assert total.item() == sum(range(world_size))
'''
"""The first test of somebody's repository."""


def new_scenario(name: str) -> dict[str, bytes]:
    """A scenario and its script: names of files -> contents."""
    file = name.replace("-", "_")
    return {f"{file}.yaml": _SCENARIO.format(name=name, file=file).encode(), f"{file}.py": _SCRIPT.encode()}


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
