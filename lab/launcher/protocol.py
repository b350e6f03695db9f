"""What a launcher is: which process starts workers on which node, with which words and variables."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from lab.spec.launching import Launching


class Starter(NamedTuple):
    """A process without a rank that starts workers on its node."""

    node: str
    argv: tuple[str, ...]
    """Its program and arguments; `lab.node.messages.agent` says what stands for the node's Python and the stub."""
    env: Mapping[str, str]
    """What is added to the node's own environment."""
    entry: str = ""
    """`module:function` that it calls, warm in a fork of the agent; empty: `argv` is a program."""
    modules: tuple[str, ...] = ()
    """What the Python of its node must have for its workers."""


class Layout(NamedTuple):
    """What a launcher is told of a run."""

    run: str
    addresses: tuple[str, ...]
    """By rank of the node, as the other nodes know it."""
    nproc_per_node: int
    port: int
    """Of the rendezvous store of the run, on the first node."""
    env: Mapping[str, str]
    """What every worker has besides the variables of its rank."""
    argv: tuple[str, ...]
    """The script, relative to its folder, and its arguments."""
    settings: Launching


class Launcher(Protocol):
    """What starts workers on nodes."""

    plans_ranks: bool
    """Whether ranks are where the plan has them, with its variables; else its starters decide."""
    one_user: bool
    """Whether it needs the ranks of a node to be one user."""

    def refusal(self, layout: Layout) -> str:
        """Why it cannot start this, as a sentence; empty where it can."""

    def starters(self, layout: Layout) -> tuple[Starter, ...]:
        """The processes that are started on the nodes; none where the agents start the workers themselves."""

    def further(self, asking: Starter, line: str) -> Starter | None:
        """The process that a starter asks for by a line that it prints."""


def find_launcher(name: str) -> Launcher:
    """The launcher of that name, one of `LAUNCHERS`."""
    return cast("Launcher", import_module(f"lab.launcher.{name}").Launcher())
