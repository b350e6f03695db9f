"""Which YAML files are scenarios. Cheap: every YAML file in the folders of every session comes by here."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

from lab.spec.lessons import looks_like_one


def is_test(path: Path, parent: pytest.Collector) -> bool:
    """Whether a YAML file is a scenario, or one that somebody has named and that should be."""
    if parent.session.isinitpath(path):
        return True
    patterns = parent.config.getini("lab_files")
    return any(fnmatch(path.as_posix(), f"*/{pattern}") for pattern in patterns) and looks_like_one(path)
