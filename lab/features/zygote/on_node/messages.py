"""What a container's zygote is asked, and what it answers: one JSON object a line, over its standard streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple, TypeVar, Union

from ....node.messages.typed import Misfit, read


class Enter(NamedTuple):
    """Asks for the agent of a node."""

    asked: str
    """Names the request: whoever is attached reads all answers."""
    pid: int
    """Of the node's first process, as the machine numbers it."""
    container: str
    """The engine's id of the node."""


class Entered(NamedTuple):
    """The agent is in its node, or why it is not."""

    asked: str
    problem: str = ""


T = TypeVar("T", Enter, Entered)


def encode(message: Union[Enter, Entered]) -> bytes:
    """A message as the line that carries it."""
    return json.dumps(message._asdict()).encode() + b"\n"


class Lines:
    """Turns chunks of bytes into messages of one kind; what is none of it is skipped."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes, kind: type[T]) -> Iterator[T]:
        """Every message that ends in this chunk."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            try:
                yield read(kind, json.loads(line))
            except (ValueError, Misfit):
                continue
