"""Modules that ranks did not find and that lie on this machine: a person's own files, which nobody can install."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from lab.diagnosis.errors import missing_module
from lab.diagnosis.facts import RunFacts
from lab.record.events import NotShipped

_LEVELS = 4
"""Folders above that of the script in which a person's own modules are looked for."""


def not_shipped(facts: RunFacts, folder: Path) -> Iterator[NotShipped]:
    """A fact for each such module; `folder` is the one that was shipped."""
    for module in sorted({name for rank in facts.ranks if (name := missing_module(rank.error))}):
        path = _find(module, folder)
        if path is not None:
            yield NotShipped(time.time(), module, str(path), str(folder))


def _find(module: str, folder: Path) -> Path | None:
    if (folder / module).is_dir():  # left out, whatever it holds
        return folder / module
    above = [parent for parent in folder.parents[:_LEVELS] if parent != Path(parent.anchor)]
    further = [Path(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    for place in (folder, *above, Path.cwd(), *further):
        for path in (place / f"{module}.py", place / module / "__init__.py"):
            if path.is_file():
                return path if path.name != "__init__.py" else path.parent
    return None
