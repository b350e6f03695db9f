"""Calls a scenario's own check with the results of all ranks; run like a script, inside node 0, never on the host."""

from __future__ import annotations

import importlib.util
import json
import os
import sys

RESULTS_VARIABLE = "LAB_RESULTS"
FOLDER_VARIABLE = "LAB_WORK_FOLDER"
"""Where the ranks of node 0 worked: what is there is theirs, while the check's own folder is as it was shipped."""


def main() -> None:
    """Call `FILE.py:FUNCTION` from the command line with the list of results; what it raises is the verdict."""
    file, _, function = sys.argv[1].partition(":")
    with open(os.environ[RESULTS_VARIABLE], encoding="utf-8") as results_file:
        results = json.load(results_file)
    spec = importlib.util.spec_from_file_location("lab_check", os.path.join(os.getcwd(), file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    check = getattr(module, function, None)
    if check is None:
        raise AttributeError(f"{file} has no function {function!r}")
    if check(results) is False:
        raise AssertionError(f"{function} returned False")


if __name__ == "__main__":
    main()
