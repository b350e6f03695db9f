"""Dumps as PyTorch writes them, made up."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SECOND = 1_000_000_000
BEGUN = 1_790_000_000 * SECOND


def entry(number: int, name: str = "nccl:all_reduce", seq: int | None = None, **fields: Any) -> dict[str, Any]:
    """A call; the number is that of the record, from 0, and without a `seq` that of the collective from 1."""
    done = fields.get("state", "completed") == "completed"
    return {
        "frames": [
            {
                "name": "all_reduce",
                "filename": "/opt/env/lib/python3.11/site-packages/torch/distributed/d.py",
                "line": 3,
            },
            {"name": "step", "filename": "/home/me/job/train.py", "line": 40 + number},
            {"name": "<module>", "filename": "/home/me/job/main.py", "line": 7},
        ],
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number + 1 if seq is None else seq,
        "p2p_seq_id": 0,
        "op_id": number + 1,
        "profiling_name": name,
        "time_created_ns": BEGUN + number * SECOND,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": BEGUN + number * SECOND,
        "time_discovered_completed_ns": BEGUN + number * SECOND + SECOND // 2 if done else None,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": False,
        **fields,
    }


def waiting(number: int, name: str = "nccl:all_reduce", **fields: Any) -> dict[str, Any]:
    """A call that has not ended."""
    return entry(number, name, **{"state": "started", **fields})


def dump(entries: Sequence[dict[str, Any]], ranks: Sequence[int] = range(4), **fields: Any) -> dict[str, Any]:
    """What a rank of a job leaves."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(ranks))}}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": list(entries), **fields}


def write(folder: Path, dumps: dict[int, dict[str, Any]], prefix: str = "nccl_trace_rank_") -> Path:
    """A folder with a pickle of each rank."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, data in dumps.items():
        (folder / f"{prefix}{rank}").write_bytes(pickle.dumps(data, protocol=2))
    return folder
