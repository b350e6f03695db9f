"""`lab attach`: show what each rank of a running job does and who waits for whom, without changing the job.

Examples:
  lab attach 4711                   the pid of the launcher, or of any rank
  lab attach 4711 --interval 10s    two samples, 10 seconds apart
  lab attach 4711 --json            the same as JSON

Reads the stacks with py-spy, which does not pause the job, twice to see who moves on. The calls of the
ranks are known if `lab record` started the job, or if it runs PyTorch's debug server.
"""

from __future__ import annotations

import argparse
import os

from lab.cli import arguments as shared
from lab.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=shared.positive, metavar="PID", help="the launcher of the job, or any of its ranks")
    about = "time between two samples of each rank; 0: one sample (default: 1s)"
    parser.add_argument("--interval", type=shared.stall_limit, default=1.0, metavar="TIME", help=about)
    about = "time limit for reading one process, or for the answer of a server (default: 10s)"
    parser.add_argument("--timeout", type=shared.duration, default=10.0, metavar="TIME", help=about)
    shared.add_options(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    """Look at the job; needs no engine."""
    from lab.features.attach.job import find_program, find_worlds, inspect_world, read_command

    pid, of_pid, program = arguments.pid, find_worlds(arguments.pid), find_program()
    states = (inspect_world(ranks, program, arguments.interval, arguments.timeout) for ranks in of_pid)
    worlds = [*filter(None, states)]
    if not worlds:
        what = f"process {pid} ({os.path.basename(read_command(pid)[0]) or 'of the system'})"
        hint = "name a rank or its launcher; a rank is a Python with RANK in its environment or a process group"
        raise UsageError(f"{what} belongs to no job: no process below or above it is a rank", hint)
    data = {"pid": pid, "worlds": [world.data for world in worlds]}
    return shared.print_answer(arguments, data, lambda style: "\n\n".join(world.text(style) for world in worlds))
