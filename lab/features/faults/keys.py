"""What a scenario says of faults: what is broken in its run, its network, and how soon it has to be noticed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lab.frozen import dataclass
from lab.spec import kinds
from lab.spec.declare import key, said_of
from lab.spec.kinds import late
from lab.spec.scenario import MAX_TIMEOUT_S, Expect, Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.features.faults.fault import Fault
    from lab.features.faults.network import Network


@dataclass(frozen=True, kw_only=True)
class FaultKeys:
    """Keys of a scenario."""

    network: Network | None = key(
        None, kinds.late("lab.features.faults.network", "network"), "network: {rate: 100mbit, delay: 5ms}", "as it is"
    )
    """What the links between nodes are like while it runs: rate, delay, jitter and loss of all of them, or of some, or
    a profile by name, on the docker engine; see networks."""
    faults: tuple[Fault, ...] = key(
        (),
        late("lab.features.faults.fault", "fault_list"),
        "faults: [{kill: node2, when: {rank: 0, note: step}}]",
        "none",
    )
    """What is broken on purpose while it runs, each when its event comes; see Faults."""
    rerun: bool = key(False, kinds.boolean(), "rerun: true")
    """If the run fails because of its faults, run it again without them, with what it left in the shared folder. The
    second run has to pass, and is the one that is reported."""


@dataclass(frozen=True, kw_only=True)
class DetectionKeys:
    """Keys of `expect:`."""

    detected_within_s: float | None = key(
        None, kinds.duration(MAX_TIMEOUT_S), "detected_within: 5s", "not checked", name="detected_within"
    )
    """How long after each fault is in force something has to show it: an end, a loss, a time-out, data that nobody
    acknowledges."""


def broken_in(scenario: Scenario) -> FaultKeys:
    """What a scenario says of faults."""
    return said_of(scenario, FaultKeys)


def detected_within(expect: Expect) -> float | None:
    """How soon each fault has to be noticed, in seconds; None: that is not checked."""
    return said_of(expect, DetectionKeys).detected_within_s


def with_faults(scenario: Scenario, faults: Sequence[Fault], *, rerun: bool = False) -> Scenario:
    """The scenario, in which these faults are done and no others."""
    extra = {name: value for name, value in scenario.extra.items() if name not in ("faults", "rerun")}
    extra |= {"faults": tuple(faults)} if faults else {}
    return replace(scenario, extra={**extra, "rerun": True} if rerun else extra)
