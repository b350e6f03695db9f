"""The first program of a container: read the agent's files from standard input and become the agent, or the zygote.

Its text comes over standard input too, and is run by the line that `docker ps` and `ps` show. The last argument
configures the agent, and names the folder for its files.
"""

import importlib
import io
import json
import os
import signal
import sys
import tarfile

IMPORT_ROOT = "/opt/lab"
NO_TORCH = 71
ZYGOTE = "zygote"
"""Key of the module of a zygote; no agent's configuration has it."""
DEADLINE_S = 30
"""If the agent has not arrived by then, the sender is dead, and the container ends."""
HEADER_BYTES = 10
"""Length of the decimal number that states the length of the following part."""
BECOME = (
    f"'agent of the lab'; import os, signal; signal.alarm({DEADLINE_S}); "
    "read = lambda size: b''.join(os.read(0, 1) for _ in range(size)); "  # no extra byte: the rest is for the agent
    f"exec(read(int(read({HEADER_BYTES}))))"
)
"""The command line that starts, and reads this program."""


def read_input(size: int) -> bytes:
    """Read exactly this many bytes of standard input; the rest is for the agent."""
    parts = []
    while size > 0:
        if not (part := os.read(0, size)):
            sys.exit("standard input ended before the agent arrived")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def main() -> None:
    """Become the agent."""
    config, sent = json.loads(sys.argv[-1]), read_input(int(read_input(HEADER_BYTES)))
    with tarfile.open(fileobj=io.BytesIO(sent)) as archive:
        archive.extractall(config["import_root"])
    signal.alarm(0)
    sys.path[0] = config["import_root"]  # not the working folder, where a volume could have the name of a module
    sys.path.append(config["import_root"])
    if ZYGOTE in config:
        importlib.import_module(config[ZYGOTE]).main(sent)
    from labnode.node.agent import main as become_agent  # type: ignore[import-not-found]

    become_agent()


if __name__ == "__main__":
    main()
