"""Records of runs that the pages under test are made from."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from lab.features.lessons.question import Prediction
from lab.record.layout import EVENTS, INDEX, LOGS, OUTPUTS, PLAN, RESULT, SCENARIO, TRACE, rank_log, rank_trace
from lab.record.read import Record
from tests.traces import TraceMaker

ORIGIN = 1_700_000_000.0
"""Unix time at which the traces begin."""
SCRIPT = '''"""Trains."""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    for _ in range(3):
        dist.all_reduce(torch.ones(2))
    dist.barrier()


main()
'''


def result(maker: TraceMaker, verdict: str = "passed", reason: str = "all ranks ended as expected") -> dict[str, Any]:
    """A `result.json`."""
    ranks = [
        {"rank": rank, "node": f"node{rank}", "local_rank": 0, "exit_code": 0, "signal": None, "stopped": False,
         "error": "", "traceback": "", "stack": "", "notes": {"loss": 0.5 + rank}, "duration_s": 0.1}
        for rank in range(maker.world_size)
    ]  # fmt: skip
    return {
        "verdict": verdict, "reason": reason, "scenario": "train", "run": maker.path.name, "engine": "local",
        "cluster": "test", "culprit": None, "ranks": ranks, "expectations": [], "duration_s": 0.1, "faults": [],
    }  # fmt: skip


def add_output(folder: Path, printed: list[tuple[int, int, float, str]]) -> None:
    """What ranks printed: rank, stream, milliseconds, text."""
    offsets: dict[int, int] = {}
    with (folder / INDEX).open("a", encoding="utf-8") as index:
        for rank, stream, at_ms, text in printed:
            data = text.encode()
            with (folder / LOGS / rank_log(rank)).open("ab") as log:
                log.write(data)
            line = [rank, stream, offsets.get(rank, 0), len(data), ORIGIN + at_ms / 1e3]
            index.write(json.dumps(line) + "\n")
            offsets[rank] = offsets.get(rank, 0) + len(data)


def add_events(folder: Path, *events: dict[str, Any]) -> None:
    """Facts of the run; `ms` is the time."""
    with (folder / EVENTS).open("a", encoding="utf-8") as file:
        for event in events:
            event = dict(event)
            file.write(json.dumps({**event, "time": ORIGIN + event.pop("ms") / 1e3}) + "\n")


def training(folder: Path) -> Record:
    """Two ranks that reduce three times, rank 1 always late, then meet at a barrier."""
    maker = TraceMaker(folder, 2)
    (folder / "train.py").write_text(SCRIPT)
    (folder / SCENARIO).write_text("name: train\nscript: train.py\nnodes: 2\n")
    for number in range(3):
        start = 10 + 25 * number
        for rank, late in ((0, 0), (1, 8)):
            maker.mark(rank, "backward", start - 4, start + 18)
            before, after = [[rank + 1.0, 2.0]], [[3.0, 4.0]]
            maker.call(rank, "all_reduce", start + late, start + 15, before, after, red="SUM", at="train.py:10")
    for rank in (0, 1):
        maker.call(rank, "barrier", 86 + rank, 95, at="train.py:11")
    add_output(folder, [(0, 1, 20, "epoch 0\n"), (1, 1, 30, "epoch 0\nloss is 0.25\n"), (1, 2, 50, "a warning\n")])
    add_events(
        folder,
        *({"event": "started", "rank": rank, "node": f"node{rank}", "ms": 1} for rank in (0, 1)),
        {"event": "note", "rank": 1, "name": "loss", "value": 1.5, "ms": 60},
        *({"event": "exited", "rank": rank, "node": f"node{rank}", "code": 0, "ms": 99} for rank in (0, 1)),
    )
    return maker.record(result=result(maker))


def never_entered(folder: Path) -> Record:
    """Three ranks; rank 1 never enters the second all_reduce, and the record ends without a result."""
    maker = TraceMaker(folder, 3)
    for rank in range(3):
        maker.call(rank, "all_reduce", 10, 12, [[1.0]], [[3.0]], red="SUM")
    for rank in (0, 2):
        maker.call(rank, "all_reduce", 20, None, [[1.0]], red="SUM", at="train.py:22")
    for rank in range(3):
        maker.line(rank, "mark", 4000, n="step", e=0)
    return maker.record(stop=False)


def hostile(folder: Path, attack: str) -> Record:
    """A run in which everything that people can name or print is an attack on the page."""
    maker = TraceMaker(folder, 2)
    (folder / "train.py").write_text(f"# {attack}\n")
    (folder / SCENARIO).write_text(f"name: '{attack}'\n")
    for rank in (0, 1):
        maker.mark(rank, attack, 1, 30)
        maker.call(rank, "all_reduce", 10, 20, [[1.0]], [[2.0]], red="SUM", at=f"{attack}:1", fn=attack, via=attack)
    add_output(folder, [(0, 1, 5, f"{attack}\n"), (1, 2, 6, f"\x1b[31m{attack}\x1b[0m\n")])
    add_events(folder, {"event": "note", "rank": 0, "name": attack, "value": attack, "ms": 12})
    data = result(maker, "failed", attack)
    data["scenario"] = attack
    data["culprit"] = {"rank": 1, "node": attack, "error": attack, "traceback": attack}
    data["ranks"][0]["notes"] = {attack: {attack: [attack]}}
    data["ranks"][1]["error"] = attack
    data["expectations"] = [{"what": attack, "rank": 0, "expected": attack, "got": attack, "met": False}]
    record = maker.record(result=data)
    plan = json.loads((folder / PLAN).read_text())
    for worker in plan["workers"]:
        worker["env"] = {"HOSTILE": attack, attack: attack}
    (folder / PLAN).write_text(json.dumps(plan))
    return record


def long_training(folder: Path, calls: int, world_size: int = 4) -> Record:
    """A training loop with so many calls in all, written line by line: `TraceMaker` would take long."""
    maker = TraceMaker(folder, world_size)
    record = maker.record(stop=False, result=result(maker))
    steps = calls // world_size
    for rank in range(world_size):
        with (folder / TRACE / rank_trace(rank)).open("a") as file:
            for number in range(steps):
                start = 5_000_000_000 + (10 + number * 3) * 1_000_000
                begin = start + (rank * 7 + number) % 5 * 200_000
                if number % 4 == 0:
                    file.write(f'{{"k":"mark","t":{start - 500_000},"n":"backward","e":0}}\n')
                file.write(
                    f'{{"k":"begin","t":{begin},"i":{number + 1},"op":"all_reduce","g":"0","seq":{number + 1},'
                    f'"async":false,"red":"SUM","in":[["float32",[4]]],"ib":16,"iv":[[1.0,2.0,3.0,{rank}.0]],'
                    f'"at":"train.py:{10 + number % 3}","fn":"main","via":"all_reduce"}}\n'
                    f'{{"k":"end","t":{start + 2_000_000},"i":{number + 1},"ov":[[4.0,8.0,12.0,6.0]]}}\n'
                )
                if number % 4 == 3:
                    file.write(f'{{"k":"mark","t":{start + 2_500_000},"n":"backward","e":1}}\n')
            file.write(f'{{"k":"stop","t":{5_000_000_000 + (20 + steps * 3) * 1_000_000}}}\n')
    end = 20 + steps * 3
    add_events(
        folder,
        *({"event": "started", "rank": rank, "node": f"node{rank}", "ms": 1} for rank in range(world_size)),
        *({"event": "exited", "rank": rank, "node": f"node{rank}", "code": 0, "ms": end} for rank in range(world_size)),
    )
    return record


def crowd(folder: Path) -> Record:
    """Forty ranks that reduce twice, rank 7 late and the one that fails; rank 30 skips the barrier at the end.

    Then two and two reduce once more, and node4 has a fault at 91 ms.
    """
    maker = TraceMaker(folder, 40)
    for rank in range(40):
        for number in range(2):
            begin = 40 * number + (20 if rank == 7 else rank / 10)
            maker.call(rank, "all_reduce", begin, 40 * number + 30, [[1.0]], [[40.0]], red="SUM", at="train.py:10")
        if rank != 30:
            maker.call(rank, "barrier", 80 + rank / 10, 90, at="train.py:11")
        group = f"pair{rank // 2}"
        maker.group(group, [rank - rank % 2, rank - rank % 2 + 1], 91)
        maker.call(rank, "all_reduce", 91, 95, [[1.0]], [[2.0]], red="SUM", at="train.py:12", group=group)
    add_output(folder, [(rank, 1, 60 + rank / 10, f"rank {rank}\n") for rank in range(40)])
    add_events(
        folder,
        *({"event": "started", "rank": rank, "node": f"node{rank}", "ms": -5} for rank in range(40)),
        *({"event": "exited", "rank": rank, "node": f"node{rank}", "code": 0, "ms": 97} for rank in range(40)),
        {"event": "fault", "fault": "delay 5ms", "node": "node4", "ms": 91},
    )
    data = result(maker, "failed", "rank 7 (node7) raised ValueError: no")
    data["culprit"] = {"rank": 7, "node": "node7", "error": "ValueError: no"}
    return maker.record(result=data)


def failed(folder: Path) -> Record:
    """Rank 1 raises; its peer loses it in its second call."""
    maker = TraceMaker(folder, 2)
    (folder / "train.py").write_text(SCRIPT)
    for rank in (0, 1):
        maker.call(rank, "all_reduce", 10, 12, [[1.0]], [[2.0]], red="SUM", at="train.py:10")
    index = maker.call(0, "all_reduce", 20, None, [[1.0]], red="SUM", at="train.py:10")
    maker.line(0, "end", 30, i=index, error="Connection closed by peer")
    data = result(maker, "failed", "rank 1 (node1) raised ValueError: no at train.py:9")
    data["culprit"] = {"rank": 1, "node": "node1", "error": "ValueError: no", "traceback": 'File "train.py", line 9'}
    data["expectations"] = [{"what": "note loss", "rank": 0, "expected": 1.0, "got": 0.5, "met": False}]
    return maker.record(result=data)


def hung(folder: Path) -> Record:
    """Rank 1 never comes to the second call; the lab stops both, which an old record calls an expectation not met."""
    maker = TraceMaker(folder, 2)
    (folder / "train.py").write_text(SCRIPT)
    for rank in (0, 1):
        maker.call(rank, "all_reduce", 10, 12, [[1.0]], [[2.0]], red="SUM", at="train.py:10")
    maker.call(0, "all_reduce", 20, None, [[1.0]], red="SUM", at="train.py:10")
    data = result(maker, "hung", "the run did not end within 5 s: rank 1 was at train.py:9")
    data["expectations"] = [
        {"what": "exit", "rank": rank, "expected": 0, "got": "SIGTERM", "met": False} for rank in (0, 1)
    ]
    for rank in data["ranks"]:
        rank.update(exit_code=None, signal="SIGTERM", stopped=True, stack='File "train.py", line 9 in main')
    return maker.record(stop=False, result=data)


def lesson(folder: Path) -> Record:
    """A run that teaches something, and of which something was predicted."""
    record = training(folder)
    (folder / SCENARIO).write_text(
        "name: train\nscript: train.py\nlearn: Ranks end with the sum.\n"
        "predict: {ask: What does rank 1 hold?, choices: [3, 4], answer: 3}\n"
    )
    Prediction(
        lesson="train",
        question="What does rank 1 hold?",
        choices=("3", "4"),
        prediction="4",
        answer="3",
        right=False,
        insight="Ranks end with the sum.",
    ).write(folder)
    return record


def empty(folder: Path) -> Record:
    """A run whose ranks were recorded and called nothing."""
    maker = TraceMaker(folder, 2)
    return maker.record(result=result(maker))


PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)


def with_files(folder: Path, made: dict[str, bytes]) -> Record:
    """A run that made these files."""
    record = training(folder)
    data = json.loads((folder / RESULT).read_text())
    data["outputs"] = [{"path": path, "ranks": [0], "bytes": len(content)} for path, content in made.items()]
    data["outputs_left_out"] = ["huge.bin: it is 70 MB"]
    (folder / RESULT).write_text(json.dumps(data))
    for path, content in made.items():
        (folder / OUTPUTS / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / OUTPUTS / path).write_bytes(content)
    return record


def suite(runs: Path) -> list[Record]:
    """Three runs that one command made, each with another verdict."""
    made = [training(runs / "20260101-000000-train"), failed(runs / "20260101-000001-fails")]
    made.append(hung(runs / "20260101-000002-hangs"))
    for number, record in enumerate(made, start=1):
        plan = json.loads((record.path / PLAN).read_text())
        turn = {"suite": "20260101-000000-abcd", "number": number, "of": 4}
        (record.path / PLAN).write_text(json.dumps({**plan, "turn": turn}))
    return made
