"""Writes traces as workers would, for tests of what reads and shows them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.record.layout import LOGS, PLAN, RESULT, TRACE, rank_trace
from lab.record.read import Record

_BYTES = {"float32": 4, "float64": 8, "int64": 8, "int32": 4, "uint8": 1, "bfloat16": 2, "float16": 2, "bool": 1}


class TraceMaker:
    """Makes the record of a run with a trace. Times are milliseconds from the start of the run."""

    def __init__(self, folder: Path, world_size: int = 2, *, script: str = "train.py", nproc_per_node: int = 1) -> None:
        self.path = folder
        self.world_size = world_size
        self.lines: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(world_size)}
        self.indices = dict.fromkeys(range(world_size), 0)
        self.seqs: dict[tuple[int, str], int] = {}
        (folder / LOGS).mkdir(parents=True)
        workers = [
            {"rank": rank, "node": f"node{rank // nproc_per_node}", "local_rank": rank % nproc_per_node}
            for rank in range(world_size)
        ]
        plan = {"run": folder.name, "scenario": script.removesuffix(".py"), "script": script, "workers": workers}
        (folder / PLAN).write_text(json.dumps({**plan, "engine": "local", "cluster": "test"}))
        for rank in range(world_size):
            self.line(rank, "start", 0, format=1, rank=rank, pid=100 + rank, wall=1_700_000_000_000_000_000,
                      boot="b", recorder="python", torch="2.13.0", values=128)  # fmt: skip
        self.group("0", range(world_size), desc="default_pg")

    def line(self, of: int, kind: str, at_ms: float, /, **fields: Any) -> None:
        """Any line of a rank."""
        self.lines[of].append({"k": kind, "t": int(5_000_000_000 + at_ms * 1e6), **fields})

    def on_hosts(self, error_ms: float) -> None:
        """Give each rank a clock of its own, which may be off by so much."""
        for rank, lines in self.lines.items():
            lines[0].update(boot=f"b{rank}", within=int(error_ms * 1e6))

    def group(self, name: str, ranks: Sequence[int], at_ms: float = 0, desc: str = "") -> None:
        """A process group, told by its members."""
        for rank in ranks:
            self.line(rank, "group", at_ms, g=name, ranks=list(ranks), backend="gloo", desc=desc)

    def call(
        self,
        rank: int,
        op: str,
        begin_ms: float,
        end_ms: float | None,
        before: Sequence[Sequence[Any]] = (),
        after: Sequence[Sequence[Any]] | None = None,
        *,
        dtype: str = "float32",
        group: str = "0",
        at: str = "train.py:10",
        in_place: bool | None = None,
        **fields: Any,
    ) -> int:
        """A call with the values of its tensors before and after; returns its index. `end_ms=None`: it never ended."""
        index = self.indices[rank] = self.indices[rank] + 1
        if in_place is None:
            in_place = op in ("all_reduce", "broadcast", "reduce", "barrier", "send")
        width = _BYTES[dtype]
        begin: dict[str, Any] = {"i": index, "op": op, "g": group}
        if op not in ("send", "recv"):
            self.seqs[rank, group] = begin["seq"] = self.seqs.get((rank, group), 0) + 1
        begin["async"] = False
        begin |= {name: fields.pop(name) for name in ("red", "root", "peer", "tag", "split") if name in fields}
        begin["in"] = [[dtype, [len(values)]] for values in before]
        begin["ib"] = sum(len(values) for values in before) * width
        begin["iv"] = [list(values) for values in before]
        if not in_place:
            begin["out"] = [[dtype, [len(values)]] for values in after or ()]
            begin["ob"] = sum(len(values) for values in after or ()) * width
        begin.update(at=at, fn="main", via=op)
        begin.update(fields)
        self.line(rank, "begin", begin_ms, **begin)
        if end_ms is not None:
            values = {"ov": [list(values) for values in after]} if after is not None else {}
            self.line(rank, "end", end_ms, i=index, **values)
        return index

    def mark(self, rank: int, name: str, begin_ms: float, end_ms: float, at: str = "train.py:5") -> None:
        """A phase of a training step."""
        self.line(rank, "mark", begin_ms, n=name, e=0, at=at)
        self.line(rank, "mark", end_ms, n=name, e=1)

    def record(self, *, stop: bool = True, result: dict[str, Any] | None = None) -> Record:
        """Write it all."""
        (self.path / TRACE).mkdir(exist_ok=True)
        for rank, lines in self.lines.items():
            ordered = sorted(lines, key=lambda line: line["t"])
            if stop:
                ordered.append({"k": "stop", "t": ordered[-1]["t"] + 1})
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in ordered)
            (self.path / TRACE / rank_trace(rank)).write_text(text)
        if result is not None:
            (self.path / RESULT).write_text(json.dumps(result))
        return Record(path=self.path)
