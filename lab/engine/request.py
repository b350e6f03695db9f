"""What an engine asks for when it makes a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Request:
    """One thing that is asked for; plain data, the same for the same shape and names."""

    what: str
    """A kind and a name, such as `container lab-c-node0`."""
    body: Mapping[str, Any]
    """What is said of it, in the words of whoever is asked: Docker's API, or this machine."""
