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
    """Its details, as the one who is asked expects them: Docker's API, or this machine."""
