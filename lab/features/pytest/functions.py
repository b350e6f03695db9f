"""Tests that are marked as distributed run on the warm clusters of the session, and fail as other tests do."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest

from lab.features.functions.calling import How
from lab.features.functions.distributed import Provided, provide
from lab.features.pytest.item import cluster_for
from lab.features.pytest.marker import checked_shape, wanted_by

_INI = ("truncation_limit_lines", "truncation_limit_chars", "assertion_text_diff_style")

_turn = threading.Lock()
"""Threads of a test ask for its cluster one after the other."""


def provided_for(item: pytest.Item) -> AbstractContextManager[None]:
    """What functions that are called while a test runs get from its session."""

    def cluster(said: Mapping[str, Any]) -> Any:
        with _turn:
            return cluster_for(item, {**wanted_by(item), **checked_shape(said, "@lab.distributed")})

    how = How(
        settings=lambda: _assertion_settings(item.config),
        variables=bool(item.config.getoption("showlocals", False)),
        write=_written,
    )
    return provide(Provided(cluster=cluster, test=getattr(item, "function", None), how=how))


def _assertion_settings(config: pytest.Config) -> dict[str, Any]:
    """What the explanation of an assertion depends on; see `labnode.features.functions.on_node.call_assertions`."""
    settings = {name: _ini(config, name) for name in _INI}
    kind = getattr(pytest.Config, "VERBOSITY_ASSERTIONS", None)
    verbosity = config.get_verbosity(kind) if kind is not None else config.getoption("verbose")
    on_ci = any(os.environ.get(name) for name in ("CI", "BUILD_NUMBER"))
    return {**settings, "verbosity": verbosity, "ci": on_ci}


def _ini(config: pytest.Config, name: str) -> Any:
    try:
        return config.getini(name)
    except (KeyError, ValueError):  # another version of pytest has no such option
        return None


def _written(error: BaseException) -> str:
    return str(pytest.ExceptionInfo.from_exception(error).getrepr(style="long", abspath=False))
