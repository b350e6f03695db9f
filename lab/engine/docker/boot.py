"""The first program of a container: takes the agent's files over standard input and becomes the agent.

Its text is given to the container's Python (3.9 or newer) with `-c`, and itself as the first argument, so that it can
try the next Python on PATH where the first one has no torch. The last argument is for the agent.
"""

import importlib.util
import io
import os
import shutil
import signal
import sys
import tarfile

IMPORT_ROOT = "/opt/lab"
NO_TORCH = 71
_DEADLINE_S = 30
"""If the agent has not arrived by then, the sender is dead, and the container ends."""


def read(size: int) -> bytes:
    """Exactly this many bytes of standard input: what follows is for the agent."""
    parts = []
    while size > 0:
        part = os.read(0, size)
        if not part:
            sys.exit("standard input ended before the agent had arrived")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def main() -> None:
    """Become the agent."""
    if importlib.util.find_spec("torch") is None:
        other = shutil.which("python")
        if other is not None and os.path.realpath(other) != os.path.realpath(sys.executable):
            os.execv(other, [other, "-c", *sys.argv[1:2], *sys.argv[1:]])
        print("no python on PATH can import torch", file=sys.stderr)
        sys.exit(NO_TORCH)
    signal.alarm(_DEADLINE_S)
    header = read(10)
    if not header.strip().isdigit():
        sys.exit("the agent never arrived: `lab up` was killed before it had sent it")
    with tarfile.open(fileobj=io.BytesIO(read(int(header)))) as archive:
        archive.extractall(IMPORT_ROOT)
    signal.alarm(0)
    sys.path.append(IMPORT_ROOT)
    from labnode.agent import main as become_agent  # type: ignore[import-not-found]

    become_agent()


if __name__ == "__main__":
    main()
