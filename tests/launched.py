"""Runs whose launcher may begin the workers anew, told by the messages of their agents, for tests of views of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.diagnosis.facts import begin_facts
from lab.node.messages.agent import Claimed, Exited, Output, Started
from lab.plan.cluster import ClusterInfo, Shape
from lab.plan.plan import Plan, PlanOptions, make_plan
from lab.record.events import Over
from lab.record.result import Result
from lab.record.write import RecordWriter
from lab.run.collect import Collector, Observer
from lab.run.options import Job, RunOptions
from lab.run.outcome import judge_run
from lab.run.ship import Outputs
from lab.spec.load import load_scenario
from tests.fake_engine import FakeEngine

WORK = "/var/lab/run/work"
SCENARIO = "script: train.py\nnodes: 3\nlauncher: {torchrun: {max_restarts: 2}}\n"
SCRIPT = "import torch\n\nraise ValueError('no')\n"


class Launched:
    """A run of three nodes whose launcher may begin the workers anew; told by the messages of its agents."""

    def __init__(self, folder: Path, text: str = SCENARIO) -> None:
        (folder / "train.py").write_text(SCRIPT)
        (folder / "train.yaml").write_text(text)
        self.cluster = ClusterInfo(
            name="c", engine="local", shape=Shape(nodes=3), nodes=(), owner="somebody", master_addr="127.0.0.1"
        )
        self.writer = RecordWriter(folder / "runs", "train")
        scenario = load_scenario(folder / "train.yaml")
        self.plan: Plan = make_plan(scenario, self.writer.run, self.cluster, PlanOptions())
        place = {"engine": "local", "cluster": "c", "memory_bytes": None, "began": 1000.0}
        self.writer.describe(text, folder / "train.py", {**self.plan.to_json(), **place})
        self.facts = begin_facts(self.plan, None)
        self.begun: list[int] = []
        self.outputs = Outputs(folder / "files")
        self.collector = Collector(self.facts, self.writer, _Begun(self.begun), lambda *_: None)
        self.collector.claims_sent["node0"] = 900.0
        self.collector.collect("node0", Claimed("r", 901.0, "another kernel"))
        self.key, self.clock = "", 1000.0

    def meet(self, *nodes: str) -> None:
        """Workers meet, one on each of these nodes."""
        self.key = f"node0:{29000 + len(self.begun) + bool(self.key)}"
        for rank, node in enumerate(nodes):
            self.say(node, Started(rank, self._now(), node, pid=rank + 1, attempt=self.key))

    def say(self, node: str, message: Any) -> None:
        self.collector.collect(node, message)

    def prints(self, rank: int, text: str, key: str = "") -> None:
        self.say("node0", Output("r", rank, 1, self._now(), text.encode(), key or self.key))

    def ends(self, rank: int, **how: Any) -> None:
        how = {"code": 0, **how}
        self.say("node0", Exited(rank, self._now(), f"node{rank}", attempt=self.key, **how))

    def raises(self, rank: int, error: str = "ValueError: no") -> None:
        frame = f'  File "{WORK}/train.py", line 3, in <module>\n'
        text = f"Traceback (most recent call last):\n{frame}{error}\n"
        self.ends(rank, code=1, error=error, traceback=text, raised=self._now())

    def fails(self, *ranks: int, world: int = 3) -> None:
        """These ranks raise, the others are stopped by their launcher."""
        for rank in range(world):
            if rank in ranks:
                self.raises(rank)
            else:
                self.ends(rank, code=None, signal="SIGTERM", stopped=True)

    def over(self) -> Result:
        self.collector.fact(Over(self._now(), 5.0))
        self.collector.attempts.finish()
        return judge_run(
            Job(self.plan, self.cluster, FakeEngine(), self.writer, Observer(), RunOptions()), self.facts, self.outputs
        )

    def _now(self) -> float:
        self.clock += 0.25
        return self.clock


class _Begun(Observer):
    def __init__(self, begun: list[int]) -> None:
        self._begun = begun

    def begins(self, attempt: int) -> None:
        self._begun.append(attempt)


def restarted(run: Launched) -> Result:
    """Rank 1 raises, and the second attempt ends well."""
    run.meet("node0", "node1", "node2")
    run.prints(1, "first\n")
    run.fails(1)
    run.meet("node0", "node1", "node2")
    run.prints(1, "second\n")
    for rank in range(3):
        run.ends(rank)
    return run.over()
