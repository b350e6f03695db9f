"""The scenarios that a person means by files and folders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lab.errors import UsageError
from lab.spec.problems import near


def find_scenarios(paths: Iterable[Path]) -> list[Path]:
    """Every file that is named, and every YAML file below the folders that are named, in order.

    Raises:
        UsageError: a folder holds none.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted((*path.rglob("*.yaml"), *path.rglob("*.yml")))
            inside = [file for file in inside if not any(part.startswith(".") for part in file.relative_to(path).parts)]
            if not inside:
                raise UsageError(f"{path} holds no scenarios", "a scenario is a file NAME.yaml; see `lab scenarios`")
            found.extend(inside)
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def find_by_name(name: str, folder: Path) -> Path:
    """The scenario file of a name, anywhere below a folder.

    Raises:
        UsageError: there is none, or more than one; the message names near matches.
    """
    if not folder.is_dir():
        raise UsageError(
            f"there is no folder {folder} to look for {name!r} in", "name the scenario's file, or --folder"
        )
    files = find_scenarios([folder])
    matches = [file for file in files if file.stem.replace("-", "_") == name.replace("-", "_")]
    if len(matches) > 1:
        raise UsageError(f"{name!r} could be {' or '.join(map(str, matches))}", "name the file")
    if matches:
        return matches[0]
    meant = near(name, (file.stem for file in files))
    hint = f"did you mean {meant}?" if meant else "see `lab scenarios`"
    raise UsageError(f"there is no scenario {name!r} in {folder}", hint)
