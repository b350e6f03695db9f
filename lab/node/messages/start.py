"""Messages about what is started in a node: workers, starters, the rendezvous store; part of `agent`."""

from typing import Any, NamedTuple

from .terminal import NOTHING

STARTER = -2
"""In the place of a rank, and of a local one: a starter. The scenario's check is -1."""
PYTHON = "{python}"
"""As a word of a starter's argv: the Python of the node."""
STUB = "{stub}"
"""As a word of a starter's argv: a script for that Python, with `-I -S -E` before it, that becomes a worker: a process
that has no rank asks the agent for it, passes signals on to it, and ends as it ends."""


class WorkerStart(NamedTuple):
    """What one worker, or starter, is started with."""

    rank: int
    local_rank: int
    env: dict[str, str]
    argv: list[str]
    """The script, relative to the folder that was shipped, and its arguments; of a starter, a program and its."""
    script: str = ""
    """Path of the script where `argv[0]` is not that."""
    stdin: str = NOTHING
    """What it reads, see `terminal`."""
    entry: str = ""
    """`module:function` that a starter calls in the place of a program, warm in a fork of the agent; `argv[0]` is then
    its name."""
    attempt: str = ""
    """Which workers it meets, see `Started`."""
    modules: tuple[str, ...] = ()
    """Of a starter: what the Python of the node must have."""
    triggers: tuple[dict[str, Any], ...] = ()
    """The points at which it is held: those of `Prepare` that are its own. `{"writes": True}`: its writes are seen."""


class Store(NamedTuple):
    """The rendezvous store that the first node starts before any worker."""

    address: str
    port: int
    world_size: int
