"""Whether a wheel and a source distribution hold what they should: python dev/check_release.py WHEEL SDIST."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CARRIED = {"scenarios": "lab/scenarios", "docs": "lab/docs", "mpi": "lab/mpi", "Dockerfile": "lab/Dockerfile"}
"""What lies beside the package in a checkout, and in the package in a wheel."""
_IN_DOCS = ("docs/*.md", "docs/ci/*", "docs/first/*", "docs/exercise/*")
IN_THE_WHEEL = ("lab/**", "scenarios/**", *_IN_DOCS, "Dockerfile", "mpi/*", "mpi/torch_mpi/*")
NEVER = ("*/__pycache__/*", "*.pyc", "*.whl", "*.lab/*", "*.venv/*", "*/.git/*")
"""In neither of them."""


def wrong_with(wheel: Path, sdist: Path, tracked: Iterable[str]) -> list[str]:
    """What is missing, and what is too much, in sentences.

    Args:
        wheel: one that was built.
        sdist: the sources beside it.
        tracked: every file that the checkout has under version control.
    """
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames() if "/" in name}
    tracked = set(tracked)
    wanted = {_place(name) for name in tracked if any(_matches(name, pattern) for pattern in IN_THE_WHEEL)}
    found = {name for name in in_wheel if ".dist-info/" not in name}
    said = [f"the wheel lacks {name}" for name in sorted(wanted - found)]
    said += [f"the wheel holds {name}, which nothing needs there" for name in sorted(found - wanted)]
    needed = {name for name in tracked if not name.startswith((".ci/", "wheels/"))}
    said += [f"the sources lack {name}" for name in sorted(needed - in_sdist)]
    said += [
        f"{file.name} holds {name}"
        for file, names in ((wheel, in_wheel), (sdist, in_sdist))
        for name in sorted(names)
        if any(fnmatch(name, pattern) for pattern in NEVER)
    ]
    return said


def _place(name: str) -> str:
    """Where a file of the checkout lies in the wheel."""
    top, slash, rest = name.partition("/")
    return CARRIED.get(top, top) + slash + rest


def _matches(name: str, pattern: str) -> bool:
    """Whether a path fits a pattern, in which ** stands for any folders and * for none."""
    if pattern.endswith("/**"):
        return name.startswith(pattern[:-2])
    return fnmatch(name, pattern) and name.count("/") == pattern.count("/")


def tracked_files() -> list[str]:
    """As git lists them."""
    import subprocess

    said = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in said.stdout.split("\0") if name]


if __name__ == "__main__":
    problems = wrong_with(Path(sys.argv[1]), Path(sys.argv[2]), tracked_files())
    print("\n".join(problems) or f"{Path(sys.argv[1]).name} and {Path(sys.argv[2]).name} hold what they should")
    sys.exit(bool(problems))
