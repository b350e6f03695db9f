"""`lab attach`: show what each rank of a running job does and who waits for whom, without changing the job.

Examples:
  lab attach 4711                   the pid of the launcher, or of any rank
  lab attach 4711 --apart 10s       look twice, 10 seconds apart
  lab attach 4711 --json            the same as JSON

Reads the stacks with py-spy, which does not pause the job, and looks twice to see who moves on. The calls of the
ranks are known if `lab record` started the job, or if PyTorch's debug server or worker server runs in it.
"""

from __future__ import annotations

import argparse

from lab.cli import arguments as shared
from lab.features.recording.verb import stall_limit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = shared.help_in(__doc__)
    parser.add_argument("pid", type=shared.positive, metavar="PID", help="the launcher of the job, or any of its ranks")
    about = "time between the two looks at each rank; 0: look once (default: 1s)"
    parser.add_argument("--apart", type=stall_limit, default=1.0, metavar="TIME", help=about)
    about = "time limit for reading one process, or for the answer of a server (default: 10s)"
    parser.add_argument("--timeout", type=shared.duration, default=10.0, metavar="TIME", help=about)
    shared.add_options(parser, "--json")


def run(arguments: argparse.Namespace) -> int:
    """Look at the job; needs no engine."""
    from lab.features.attach.job import look_at, world_text
    from lab.features.attach.processes import find_worlds, not_a_job
    from lab.features.attach.spy import find_program

    found, program = find_worlds(arguments.pid), find_program()
    looks = [look_at(ranks, program, arguments.apart, arguments.timeout) for ranks in found]
    worlds = [look for look in looks if look is not None]
    if not worlds:
        raise not_a_job(arguments.pid)
    return shared.print_answer(
        arguments,
        lambda: {"pid": arguments.pid, "worlds": [world.to_json() for world in worlds]},
        lambda style: "\n\n".join(world_text(world, style) for world in worlds),
    )
