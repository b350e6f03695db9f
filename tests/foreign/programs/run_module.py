"""Stands for `python -m trainer`: runs the package's `__main__` as if it had been named on the command line."""

import runpy
import sys

if __name__ == "__main__":
    sys.argv = ["trainer", *sys.argv[1:]]
    runpy.run_module("trainer", run_name="__main__", alter_sys=True)
