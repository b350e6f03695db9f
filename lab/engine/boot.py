"""The first program of a container: takes the agent's files over standard input and becomes the agent, or the zygote.

Its text comes over standard input too, and is run by the line that `docker ps` and `ps` show. The last argument is for
the agent, and says where its files go.
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
"""Names the module of a zygote where one is to be started, and is in the configuration of no agent."""
DEADLINE_S = 30
"""If the agent has not arrived by then, the sender is dead, and the container ends."""
HEADER_BYTES = 10
"""How long the decimal number is that says how long what follows it is."""
BECOME = (
    f"'agent of the lab'; import os, signal; signal.alarm({DEADLINE_S}); "
    "read = lambda size: b''.join(os.read(0, 1) for _ in range(size)); "  # not a byte more: it is for the agent
    f"exec(read(int(read({HEADER_BYTES}))))"
)
"""The line that is started, and takes this program."""


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
    config, sent = json.loads(sys.argv[-1]), read(int(read(HEADER_BYTES)))
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
