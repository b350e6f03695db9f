"""The program that installs wheels, the library that it needs, and what it is asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from lab.errors import ClusterError
from lab.features.packages import install_program
from lab.features.packages.target import Target

_LIBRARY = "installer"


@cache
def program_text() -> str:
    """The program, to be run by the Python that the packages are for."""
    return Path(install_program.__file__).read_text()


@cache
def library_folder() -> Path:
    """The folder of the library that installs wheels.

    Raises:
        ClusterError: it is not installed.
    """
    spec = find_spec(_LIBRARY)
    if spec is None or spec.origin is None:
        raise ClusterError(f"packages need the library {_LIBRARY}, which is not installed", f"pip install {_LIBRARY}")
    return Path(spec.origin).parent


def install_request(target: Target, folder: str, wheels: Sequence[str], library: str) -> str:
    """What the program is given as its last argument.

    Args:
        target: the Python that the packages are for.
        folder: where the environment goes.
        wheels: paths of wheels, where the program runs.
        library: the folder that holds the library, where the program runs.
    """
    said = {"folder": folder, "below": list(target.folders), "wheels": list(wheels), "installer": library}
    return json.dumps(said)
