"""`lab doctor --gpu`: tries the GPUs that are there."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gpu",
        dest="gpu_test",
        action="store_true",
        help="try the GPUs that are there, step by step, to an all_reduce over nccl",
    )


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Ask for a GPU at least, and examine."""
    if arguments.gpu_test:
        arguments.gpus = arguments.gpus or 1
    return verb(arguments)
