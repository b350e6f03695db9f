"""One thing that a suite runs: a scenario at one place of the matrix, in one of its repetitions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from lab.plan.cluster import Shape
from lab.spec.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing that is run, or that cannot be."""

    name: str
    """The scenario and its place in the matrix, such as `scatter[nodes=5]`; the same for every repetition."""
    scenario: Scenario
    """With the arguments, variables and the seed of this case."""
    nodes: int
    nproc_per_node: int
    backend: str | None = None
    """What carries the bytes whatever its script names; None: what that or the scenario says."""
    shape: Shape
    """The smallest cluster that it can run on."""
    repetition: int = 1
    repetitions: int = 1
    """How often it runs."""
    seed: int | None = None
    """What its ranks find as `LAB_SEED`; None: nothing."""
    skipped: str = ""
    """Why it cannot run; empty if it can."""

    @property
    def id(self) -> str:
        """Tells it from every other case: `scatter[nodes=5]`, and with repetitions `scatter[nodes=5] #17`."""
        return f"{self.name} #{self.repetition}" if self.repetitions > 1 else self.name

    @property
    def world_size(self) -> int:
        """How many ranks it has."""
        return self.nodes * self.nproc_per_node

    @cached_property
    def ground(self) -> str:
        """What a cluster has to be, but for the number of its nodes; the same for cases that can share one."""
        return ground_of(self.shape)

    def fits(self, cluster: Shape) -> bool:
        """Whether it can run on a cluster of this shape."""
        return self.nodes <= cluster.nodes and self.ground == ground_of(cluster)


def ground_of(shape: Shape) -> str:
    """A shape without its size: a case says itself how many nodes and workers it has."""
    return replace(shape, nodes=1, nproc_per_node=1).to_json()
