"""What is recorded of a process group that has been made."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lab.node.recorder import groups
from lab.node.recorder.journal import Journal

GROUPS = "torch.distributed.distributed_c10d"


class ProcessGroup:
    """A group in which this process is rank 2 of 3."""

    group_name = "0"
    group_desc = "some"

    def rank(self) -> int:
        return 2

    def size(self) -> int:
        return 3


ProcessGroup.__module__ = GROUPS


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    journal, path = Journal(), tmp_path / "trace"
    journal.open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), rank=0, recorder="", torch="", values=0)
    monkeypatch.setattr(groups, "journal", journal)
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    return path


@pytest.mark.parametrize(("given", "told"), [([], {"ranks": [0, 1, 2], "rank": 2}), ([1, 4, 5], {"ranks": [1, 4, 5]})])
def test_only_the_default_group_tells_which_rank_this_is(path: Path, given: list[int], told: dict[str, Any]) -> None:
    """A script may give it another than the worker's; in other groups it follows from that."""
    module: Any = ModuleType(GROUPS)
    module.ProcessGroup, module._world = ProcessGroup, SimpleNamespace(pg_map={})

    def _new_process_group_helper(size: int, rank: int, ranks: list[int], *_: Any) -> tuple[ProcessGroup, None]:
        group = ProcessGroup()
        module._world.pg_map[group] = ("gloo", None)
        return group, None

    module._new_process_group_helper = _new_process_group_helper
    groups.watch_groups(module, lambda _: None)
    module._new_process_group_helper(3, 2, given, "gloo", None, "0")
    [line] = [line for line in map(json.loads, path.read_text().splitlines()) if line["k"] == "group"]
    assert {key: line[key] for key in line if key not in ("k", "t")} == {
        "g": "0", "backend": "gloo", "desc": "some", **told,
    }  # fmt: skip
