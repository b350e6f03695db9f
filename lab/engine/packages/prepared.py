"""What is made of packages once and used again: an image, or a virtual environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, order=True)
class Prepared:
    """Something that nodes with packages are made of."""

    name: str
    """Of an image its name, of an environment its folder."""
    engine: str
    base: str
    """What it was made upon."""
    requirements: Sequence[str]
    """What was asked for."""
    added: Sequence[str]
    """The wheels that were missing."""
    size_bytes: int
