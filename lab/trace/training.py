"""What a trace says of the DistributedDataParallel modules of a rank."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Buckets:
    """How a DistributedDataParallel module of one rank sorted its parameters into buckets."""

    rank: int
    module: int
    """Number of the module in its process, from 1."""
    group: str
    time: float
    rebuilt: bool
    buckets: tuple[tuple[str, ...], ...]
    """Names of the parameters of each bucket, in the order of reduction."""
    sizes: tuple[int, ...]
    """Elements in each bucket."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a DistributedDataParallel module, where it stands in the order that DDP goes by."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(slots=True)
class Module:
    """A DistributedDataParallel module of one rank."""

    number: int
    """In its process, from 1, in the order of construction."""
    group: str
    source: str = ""
    """The line that constructed it."""
    parameters: tuple[Parameter, ...] = ()
    hook: str | None = None
    """What was registered to reduce its gradients; None: nothing, DDP does."""
    norms: dict[int, tuple[float | None, ...]] = field(default_factory=dict)
    """After so many steps of optimizers that have parameters of it: the norm of each parameter."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What an optimizer had and did at one of its steps."""

    time: float
    source: str
    sizes: tuple[int, ...]
    """Elements of each of its parameters."""
    gradients: tuple[float | None, ...]
    """The norm of the gradient of each, None where it had none or it is not known; of a sample where that is large."""
    norms: tuple[float | None, ...]
    """The norm of each parameter after the step."""
