"""The story of DistributedDataParallel: what it sent and why."""

from __future__ import annotations

from lab.explain.evidence import Evidence
from lab.explain.model import Finding


def tell_ddp_story(evidence: Evidence) -> list[Finding]:
    """What DDP sent, and why."""
    return []
