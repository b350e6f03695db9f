"""Finds the compiled recorder: in the node's image, or where the local engine keeps it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

from . import build

_why = "not looked for yet"


def load() -> Any | None:
    """The compiled recorder for exactly this torch, Python and source; None where there is none. Never raises.

    The agent loads it once, before it forks workers, so that a run pays nothing for it.
    """
    global _why
    if build.MODULE in sys.modules:
        return sys.modules[build.MODULE]
    try:
        import torch

        name = build.file_name(torch.__version__)
        folders = build.IMAGE_FOLDER, build.cache_folder()
        path = next((path for folder in folders if os.path.isfile(path := os.path.join(folder, name))), None)
        if path is None:
            _why = f"no {name} in {' or '.join(folders)}"
            return None
        loader = importlib.machinery.ExtensionFileLoader(build.MODULE, path)
        spec = importlib.util.spec_from_file_location(build.MODULE, path, loader=loader)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]  # there is one where a loader is given
        loader.exec_module(module)
    except Exception as error:
        _why = f"{type(error).__name__}: {error}"
        return None
    sys.modules[build.MODULE] = module
    _why = path
    return module


def why() -> str:
    """The path of the recorder that was loaded, or the reason why none was."""
    return _why
