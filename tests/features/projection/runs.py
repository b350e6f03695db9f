"""Records of training that are made by hand, with times that anybody can add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.features.projection.program import one_forward_one_backward
from tests.traces import TraceMaker

COUNT = 100_000
"""Elements of float32: 400 kB."""


def tensor(side: str, count: int) -> dict[str, Any]:
    """What a trace says of a tensor whose values are not kept."""
    told = {"in": ("in", "ib"), "out": ("out", "ob")}[side]
    return {told[0]: [["float32", [count]]], told[1]: 4 * count}


def data_parallel(
    folder: Path, ranks: int, *, steps: int = 6, overlapped: bool = False, cores: int | None = None
) -> TraceMaker:
    """Steps of 50 ms: 20 ms forward, 10 ms backward, 10 ms all_reduce, 10 ms optimizer."""
    run = TraceMaker(folder, ranks)
    for rank in range(ranks):
        if cores is not None:
            run.lines[rank][0]["cores"] = cores
        for step in range(steps):
            at = 50.0 * step
            run.mark(rank, "forward", at, at + 20)
            run.mark(rank, "backward", at + 20, at + 40)
            issued = at + (25 if overlapped else 30)
            run.call(rank, "all_reduce", issued, issued + 10, **tensor("in", COUNT), **{"async": overlapped})
            if overlapped:
                run.call(rank, "all_reduce", at + 39.9, at + 40, [[0.0]], **{"async": True})
            run.mark(rank, "step", at + 40, at + 50)
    return run


def sharded(folder: Path, ranks: int, *, steps: int = 6) -> TraceMaker:
    """Steps of 50 ms: all_gather 10 ms, forward and backward 20 ms, reduce_scatter 10 ms, optimizer 10 ms."""
    run = TraceMaker(folder, ranks)
    for rank in range(ranks):
        for step in range(steps):
            at = 50.0 * step
            run.call(
                rank,
                "all_gather_into_tensor",
                at,
                at + 10,
                [],
                [],
                **tensor("in", COUNT // ranks),
                **tensor("out", COUNT),
            )
            run.mark(rank, "backward", at + 20, at + 40)
            run.call(
                rank,
                "reduce_scatter_tensor",
                at + 30,
                at + 40,
                [],
                [],
                **tensor("in", COUNT),
                **tensor("out", COUNT // ranks),
            )
            run.mark(rank, "step", at + 40, at + 50)
    return run


def pipeline(folder: Path, *, stages: int, batches: int, steps: int = 6) -> TraceMaker:
    """1F1B, a forward of 10 ms and a backward of 20 ms in each stage, an optimizer of 10 ms; messages take 0.01 ms."""
    run = TraceMaker(folder, stages)
    free = [0.0] * stages
    for _ in range(steps):
        arrived: dict[tuple[str, int, int], float] = {}
        left = {stage: one_forward_one_backward(stage, stages, batches) for stage in range(stages)}
        while any(left.values()):
            for stage, order in left.items():
                while order:
                    kind, number = order[0]
                    way = 1 if kind == "F" else -1
                    known = 0 <= stage - way < stages
                    if known and (kind, stage, number) not in arrived:
                        break
                    order.pop(0)
                    if known:
                        begun, come = free[stage], arrived[kind, stage, number]
                        free[stage] = max(begun, come) + 0.01
                        run.call(stage, "recv", begun, free[stage], [], [[0.0]], peer=stage - way, in_place=False)
                    if kind == "B":
                        run.mark(stage, "backward", free[stage], free[stage] + 20)
                    free[stage] += 10 if kind == "F" else 20
                    if 0 <= stage + way < stages:
                        run.call(stage, "send", free[stage], free[stage] + 0.01, [[0.0]], peer=stage + way, via="isend")
                        arrived[kind, stage + way, number] = free[stage]
        for stage in range(stages):
            run.mark(stage, "step", free[stage], free[stage] + 10)
            free[stage] += 10
    return run
