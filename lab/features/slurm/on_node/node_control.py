"""Act on all processes of a node from another process on its machine, given the pid of the node's first process."""

import os
import sys

from ....node import processes

_DEADLINE_S = 5.0
WILL_NOT = 75
"""Exit code: some processes did not stop."""
NOT_THERE = 76
"""Exit code: the node has no processes."""


def main() -> None:
    """Entry point: the last arguments are the action, and the file with the pid."""
    what, path = sys.argv[-2:]
    try:
        with open(path) as file:
            first = int(file.read())
        os.kill(first, 0)
    except (OSError, ValueError):
        sys.exit(NOT_THERE)
    if what == "kill":
        processes.kill_processes(processes.list_descendants(first))
    elif what == "pause":
        sys.exit(WILL_NOT if processes.stop_processes(lambda: processes.list_descendants(first), _DEADLINE_S) else 0)
    elif what == "resume":
        processes.continue_processes(processes.list_descendants(first))
    elif what == "memory":
        print(sum(processes.held_bytes(processes.list_descendants(first)).values()))
    else:
        sys.exit(2)
