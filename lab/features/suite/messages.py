"""What a worker of a suite and its parent say to each other."""

from __future__ import annotations

from typing import NamedTuple

from lab.features.suite.outcome import Attempt
from lab.plan.cluster import Shape
from lab.run.options import RunOptions
from lab.spec.scenario import Scenario


class Task(NamedTuple):
    """One run for a worker."""

    scenario: Scenario
    options: RunOptions
    shape: Shape
    """What its cluster has to be; one in this shape is made in the place of one that is not."""


class Making(NamedTuple):
    """The worker makes its cluster."""


class Made(NamedTuple):
    """It is there."""

    took_s: float


class Begun(NamedTuple):
    """The run begins."""


class Told(NamedTuple):
    """A line of progress."""

    text: str


class Ended(NamedTuple):
    """What came of the run."""

    attempt: Attempt
    lacking: bool = False
    """Whether it could not begin because this machine lacks what it needs."""
    no_cluster: bool = False
    """Whether it could not begin because its cluster could not be made."""
    last: bool = False
    """Whether the rest is not wanted after this, or cannot be had."""


class Refused(NamedTuple):
    """The worker cannot work, and ends."""

    message: str
    hint: str
    exit_code: int


Word = Making | Made | Begun | Told | Ended | Refused
