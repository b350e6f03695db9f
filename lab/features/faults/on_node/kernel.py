"""What the kernel is asked and told over netlink, by pyroute2: one message, or several as one transaction.

Only what is used of pyroute2 is imported, and only where links are made: all of it takes half a second.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyroute2.netlink import NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nlsocket import NetlinkSocket


class Refused(OSError):
    """The kernel does not do it."""

    def __str__(self) -> str:
        return f"its kernel refuses that: {self.strerror}"


class Kernel:
    """A socket to one part of the kernel; use it in a `with`.

    Args:
        family: the part, a number of netlink's.
        answers: what its answers are read as, by the type of message.
    """

    def __init__(self, family: int, answers: Mapping[int, type[Any]]) -> None:
        self._socket = NetlinkSocket(family=family, ext_ack=True)
        self._socket.bind()
        self._socket.register_policy(dict(answers))

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()

    def do(self, kind: int, message: Any, flags: int = 0) -> None:
        """Send one request and wait until it is done.

        Raises:
            Refused: it is not.
        """
        with _refusals():
            list(self._socket.nlm_request(message, kind, NLM_F_REQUEST | NLM_F_ACK | flags))

    def do_all(self, messages: Sequence[Any]) -> None:
        """Send requests as one, and wait for an answer to each that asks for one; their headers are complete.

        Raises:
            Refused: the first that was not done.
        """
        with _refusals():
            self._socket.nlm_request_batch(messages)

    def dump(self, kind: int, message: Any) -> list[Any]:
        """All that a question finds.

        Raises:
            Refused: it cannot be asked.
        """
        with _refusals():
            return list(self._socket.nlm_request(message, kind, NLM_F_REQUEST | NLM_F_DUMP))


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except NetlinkError as error:
        raise Refused(error.code, error.args[-1]) from None


def filled(message: Any, attributes: Sequence[tuple[str, Any]] = (), **fields: int) -> Any:
    """A message of pyroute2's with these fields and attributes."""
    for name, value in fields.items():
        message[name] = value
    message["attrs"] = list(attributes)
    return message


def unless(allowed: int, refused: Refused) -> None:
    """Let a refusal pass that says what is so already.

    Raises:
        Refused: it says something else.
    """
    if refused.errno != allowed:
        raise refused


EXISTS, ABSENT = errno.EEXIST, errno.ENOENT
