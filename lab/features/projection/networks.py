"""The networks for which is projected: the measured one, or a profile by name with what is said beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lab.errors import UsageError
from lab.features.faults.network import PROFILES
from lab.features.projection.costs import Cost
from lab.spec.units import parse_duration, parse_rate

MEASURED = "measured"
ALPHA_S: Mapping[str, float] = {"lan-100g": 10e-6, "lan-400g": 10e-6}
"""Seconds of a round over networks whose cards carry data without the kernel; docs/projection.md says whence."""
_ALPHA_OF_TCP_S = 50e-6
"""Of all others; the delay of the profile comes on top."""
_BETWEEN = 0.1
"""What of its rate each rank has between racks, as in the profile `datacenter`."""
_RACKS = 2
"""Of `datacenter`, where nobody says."""
_ALLOWED = (
    f"{MEASURED}, or a profile ({', '.join(PROFILES)}) and behind it, with commas, "
    "racks=N, rate=100gbit, between=10gbit, alpha=10us"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A network as far as the model knows it."""

    name: str
    alpha_s: float
    bandwidth: float
    """Bytes a second that a rank sends while it receives as much."""
    racks: int = 1
    between: float
    """Bytes a second that a rank sends to other racks."""

    def seconds(self, cost: Cost) -> float:
        """What a cost takes."""
        near = cost.rounds * self.alpha_s + cost.bytes / self.bandwidth
        return near + cost.far_rounds * self.alpha_s + cost.far_bytes / self.between


def parse_network(text: str) -> Target | None:
    """The network that is meant; None: the one on record.

    Raises:
        UsageError: there is none of that name, or something else is said wrong.
    """
    name, *rest = text.split(",")
    if name == MEASURED:
        if rest:
            raise UsageError(f"--network: found {text!r}; the measured network is as it was: {MEASURED} stands alone")
        return None
    if name not in PROFILES:
        raise UsageError(f"--network: found {name!r}; allowed: {_ALLOWED}")
    profile = PROFILES[name]
    rate = profile.every.rate_bits_per_s or 0.0
    alpha_s = ALPHA_S.get(name, _ALPHA_OF_TCP_S) + (profile.every.delay_s or 0.0)
    racks = _RACKS if profile.between is not None else 1
    between = profile.between.rate_bits_per_s if profile.between is not None else None
    for word in rest:
        key, _, value = word.partition("=")
        if key == "racks" and value.isdecimal() and int(value) > 0:
            racks = int(value)
        elif key == "rate":
            rate = parse_rate(value)
        elif key == "between":
            between = parse_rate(value)
        elif key == "alpha":
            alpha_s = parse_duration(value)
        else:
            raise UsageError(f"--network: found {word!r}; allowed: {_ALLOWED}")
    return Target(
        name=text,
        alpha_s=alpha_s,
        bandwidth=rate / 8,
        racks=racks,
        between=(_BETWEEN * rate if between is None else between) / 8,
    )
