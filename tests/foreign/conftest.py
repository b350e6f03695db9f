"""Clusters for programs from elsewhere: those of `tests/engines`."""

from __future__ import annotations

from tests.engines.conftest import clusters, engine, make_cluster

__all__ = ["clusters", "engine", "make_cluster"]
