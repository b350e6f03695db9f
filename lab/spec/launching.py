"""Launchers: what starts the workers of a scenario; on which node which process, with which words and variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, cast

from lab.errors import UsageError
from lab.feature import LAUNCHERS, launcher, launchers

LAB = "lab"


class Launching(NamedTuple):
    """What starts the workers of a scenario."""

    name: str = LAB
    settings: Any = None
    """What the launcher is told, as the dataclass that declares its keys; None where nobody says anything."""

    @property
    def max_restarts(self) -> int:
        """So often workers are begun anew."""
        return getattr(self.settings, "max_restarts", 0)

    def least_nodes(self, nnodes: int) -> int:
        """With so many of the nodes of a run it begins, and goes on when it has lost the others."""
        return getattr(self.settings, "min_nodes", None) or nnodes


class Starter(NamedTuple):
    """A process without a rank that starts workers on its node."""

    node: str
    argv: tuple[str, ...]
    """Its program and arguments; `lab.node.messages.agent` says what stands for the node's Python."""
    env: Mapping[str, str]
    """What is added to the node's own environment."""
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
    """What starts workers on nodes; features add more of them (`Feature.launchers`)."""

    declares: str
    """The dataclass of the keys that it can be told, as `module:attribute`; empty: none."""
    plans_ranks: bool
    """Whether ranks are where the plan has them, with its variables; else its starters decide."""

    def refusal(self, layout: Layout) -> str:
        """Why it cannot start this, as a sentence; empty where it can."""

    def starters(self, layout: Layout) -> tuple[Starter, ...]:
        """The processes that are started on the nodes; none where the agents start the workers themselves."""

    def further(self, asking: Starter, line: str) -> Starter | None:
        """The process that a starter asks for by a line that it prints."""


class AgentsLauncher:
    """The lab itself: agents fork the workers that the plan lists, and no other process starts any."""

    declares = "lab.spec.launcher:Lab"
    plans_ranks = True

    def refusal(self, layout: Layout) -> str:
        """It starts anything."""
        return ""

    def starters(self, layout: Layout) -> tuple[Starter, ...]:
        """None."""
        return ()

    def further(self, asking: Starter, line: str) -> Starter | None:
        """Nobody asks for any."""
        return None


def launcher_names() -> list[str]:
    """The names of all launchers, the lab's own first; of those that come with the lab, also where they are missing."""
    return list(dict.fromkeys([LAB, *LAUNCHERS, *launchers()]))


def find_launcher(name: str) -> Launcher:
    """The launcher of a name.

    Raises:
        UsageError: there is none of that name; the message names near matches.
    """
    found = AgentsLauncher if name == LAB else launcher(name)
    if found is not None:
        return cast("Launcher", found())
    if name in LAUNCHERS:
        raise UsageError(f"the launcher {name} is one of the feature {LAUNCHERS[name]}, which is not there")
    from lab.spec.reading import did_you_mean

    names = launcher_names()
    raise UsageError(f"the lab has no launcher {name!r}{did_you_mean(name, names)}", f"allowed: {', '.join(names)}")
