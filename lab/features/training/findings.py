"""The findings of training: their kinds, and their facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from lab.diagnosis.finding import Facts, Kind, Side


class TrainingKind(Kind):
    """The kinds of findings of this feature; parameters of other shapes are `shape`."""

    COUNTS = "counts"
    PARAMETER_ORDER = "parameter_order"
    DIVERGED = "diverged"
    DDP_COUNTED = "ddp_counted", 4, "usual"
    DDP_VERIFIED = "ddp_verified", 4, "usual"
    DDP_STATE = "ddp_state", 4, "usual"
    DDP_BUFFERS = "ddp_buffers", 4
    DDP_REDUCED = "ddp_reduced", 4
    DDP_COMPRESSED = "ddp_compressed", 4
    DDP_REBUILT = "ddp_rebuilt", 4
    DDP_OVERLAP = "ddp_overlap", 4
    DDP_UNUSED = "ddp_unused", 4
    DDP_OTHER = "ddp_other", 4
    DDP_SILENT = "ddp_silent", 4


class PhaseCounts(Facts):
    """The first difference in how ranks went through their training steps."""

    phase: Literal["forward", "backward"]
    number: int
    did: bool
    """Whether the first side did it there, and the other did not."""
    first: tuple[int, ...]
    second: tuple[int, ...]
    forwards: Mapping[int, int] = field(default_factory=dict)
    """By rank."""
    backwards: Mapping[int, int] = field(default_factory=dict)
    exchanged: Mapping[int, int] = field(default_factory=dict)
    """In how many backwards a rank exchanged gradients."""


class Replicas(Facts):
    """Replicas of a DDP module that are not alike."""

    how: Literal["parameters", "parameter", "order", "norm", "steps"]
    at: tuple[str, ...] = ()
    """Where the module was made."""
    sides: tuple[Side, ...] = ()
    only_here: tuple[str, ...] = ()
    """Parameters that only the odd ranks have."""
    place: int = 0
    """Number of the parameter, from 1."""
    parameter: str = ""
    steps: int = 0
    unused_forward: bool = False
    no_exchange: bool = False
    stepped: tuple[int, ...] = ()
    stepped_at: tuple[str, ...] = ()


class WeightsApart(Facts):
    """Weights that are trained by the same gradients, and differ."""

    reduced_at: tuple[str, ...]
    steps: int
    stepped_at: tuple[str, ...]
    place: int
    sides: tuple[Side, ...]


class DdpStory(Facts):
    """What a DDP module sent, and why."""

    module: int = 0
    """Its number, where there are several."""
    made_at: str = ""
    what: tuple[str, ...] = ()
    """The calls, or their contents, in short."""
    count: int = 0
    of: int = 0
    bytes: int = 0
    before: int = 0
    first: int = 0
    more: int = 0
    number: int = 0
    share: float = 0.0
    step_s: float = 0.0
    single_bucket: bool = False
    with_buffers: bool = False
    dtype: str = ""
    parameters: int | None = None
