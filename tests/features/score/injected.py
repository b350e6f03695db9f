"""Records of runs in which something was broken, as the lab writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.judge import judge_evidence
from lab.record.events import Event, Fault, event_line
from lab.record.layout import EVENTS, LOGS, PLAN, RESULT
from lab.record.read import Record
from lab.record.result import Culprit, Result

AT = 1_700_000_000.0


def broken_run(
    folder: Path, said: dict[str, Any], *facts: Event, nodes: int = 3, culprit: Culprit | None = None, **more: Any
) -> Record:
    """A run to which this was done at `AT`; without a culprit, its verdict is what follows from the facts."""
    (folder / LOGS).mkdir(parents=True)
    workers = [{"rank": rank, "node": f"node{rank}", "local_rank": 0} for rank in range(nodes)]
    plan = {"run": folder.name, "engine": "docker", "workers": workers, "faults": [{**said, "when": {"at": "1s"}}]}
    (folder / PLAN).write_text(json.dumps({**plan, "timeout_s": 5.0}))
    fault = Fault(AT, " ".join(map(str, *said.items())), number=0)
    (folder / EVENTS).write_bytes(b"".join(map(event_line, [fault, *facts])))
    record = Record(path=folder)
    judged = judge_evidence(read_evidence(record))
    result = Result(
        verdict=more.get("verdict", judged.verdict),
        reason=more.get("reason", judged.reason),
        culprit=culprit or more.get("culprit", judged.culprit),
        run=folder.name,
    )
    (folder / RESULT).write_text(json.dumps(result.to_json()))
    return record


def without_faults(record: Record) -> Record:
    """The same record, with nothing in it of what was broken on purpose."""
    plan = json.loads((record.path / PLAN).read_text())
    (record.path / PLAN).write_text(json.dumps({**plan, "faults": []}))
    lines = (record.path / EVENTS).read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if not str(json.loads(line)["event"]).startswith("fault")]
    assert len(kept) < len(lines)
    (record.path / EVENTS).write_bytes(b"".join(kept))
    return record
