"""What comes with the lab beside its modules: lessons, pages of the docs, the Dockerfile and what it takes."""

from __future__ import annotations

from pathlib import Path


def carried(name: str) -> Path:
    """Where it lies: in the package when the lab is installed, in the root of a checkout otherwise."""
    package = Path(__file__).resolve().parent
    candidates = (package / name, package.parent / name)
    return next((path for path in candidates if path.exists()), candidates[0])
