"""The cable of a node's network: its agent pulls it out and plugs it in, told over the engine, which needs no cable."""

from __future__ import annotations

from lab.features.faults.kind import Ground

_DEED = "cable"


def pull_out(ground: Ground, node: str) -> None:
    """Take the interfaces of a node down; addresses and open connections stay.

    Raises:
        LabError: its agent cannot do that.
    """
    ground.ask(node, _DEED, {})


def plug_in(ground: Ground, node: str) -> None:
    """Take them up, with the addresses and routes that they had.

    Raises:
        LabError: its agent cannot do that.
    """
    ground.take_back(node, _DEED, {})


def is_out(ground: Ground, node: str) -> bool:
    """Whether no interface of a node is up.

    Raises:
        LabError: its agent does not say.
    """
    return not ground.look_at(node, _DEED, {})["up"]
