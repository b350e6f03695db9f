"""Calls a scenario's own check with the results of all ranks; runs like a script, inside node 0, never on the host."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any

RESULTS_VARIABLE = "LAB_RESULTS"
"""Variable with the path of a JSON file: the results of all ranks."""
FOLDER_VARIABLE = "LAB_WORK_FOLDER"
"""Variable with the folder that has copies of the files of the ranks of node 0."""
LEFT_OUT_VARIABLE = "LAB_LEFT_OUT"
"""Variable with the path of a JSON file: for each path without a copy, the reason."""
_HINT = "lab.read_output reads files of ranks within limits"


class CheckError(Exception):
    """The check itself failed."""


CheckError.__module__ = "lab"


def main() -> None:
    """Call `FILE.py:FUNCTION` from the command line with the list of results; its error decides the verdict."""
    file, _, function = sys.argv[1].partition(":")
    with open(os.environ[RESULTS_VARIABLE], encoding="utf-8") as results_file:
        results = json.load(results_file)
    spec: Any = importlib.util.spec_from_file_location("lab_check", os.path.join(os.getcwd(), file))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if (check := getattr(module, function, None)) is None:
        raise AttributeError(f"{file} has no function {function!r}")
    try:
        passed = check(results)
    except (MemoryError, RecursionError) as error:
        raise CheckError(f"{function} ended with a {type(error).__name__}; {_HINT}") from error
    if passed is False:
        raise AssertionError(f"{function} returned False")


if __name__ == "__main__":
    main()
