"""Done to all processes of a node from beside it: by another process there, told the pid of the node's first one."""

import os
import sys

from ....node import processes

_DEADLINE_S = 5.0
WILL_NOT = 75
"""Exit code: some would not stand still."""
NOT_THERE = 76
"""Exit code: there is nothing of the node."""


def main() -> None:
    """Entry point: the last arguments are what is done, and the file that holds the pid."""
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
