"""Lessons by name: where they are looked for, and what comes first."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from lab.errors import UsageError
from lab.spec.load import OWN_FOLDER, SIGN, files_below, library_folder, read_head
from lab.spec.reading import did_you_mean

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
