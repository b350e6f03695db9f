"""What an agent says of the clock of its node."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .connection import Connection
from .messages.agent import AskTime, Claimed, TimeTold
from .recorder.journal import clock_id


def claimed(run: str) -> Claimed:
    """That the node takes part in a run, and what time it is there."""
    return Claimed(run, time.time(), clock_id())


def tell(connection: Connection, asked: AskTime) -> None:
    """Say what time it is, at once."""
    connection.send(TimeTold(asked.run, asked.asked, time.time(), time.monotonic()))


ACTIONS: dict[type[Any], Callable[[Connection, Any], object]] = {AskTime: tell}
"""As those of the agent."""
