"""Find the calls of a running job's ranks: in the record of `lab record`, or in PyTorch's flight recorder."""

from __future__ import annotations

import http.client
import json
import os
import re
from contextlib import closing, suppress
from pathlib import Path

from lab.diagnosis.evidence import Evidence, read_evidence
from lab.errors import LabError
from lab.features.attach.processes import Rank
from lab.features.dumps.dump import Dumps
from lab.features.dumps.record import import_dumps
from lab.node.messages.agent import Started
from lab.node.statement import SOCKET_VARIABLE
from lab.record.layout import EVENTS
from lab.record.read import Record

_SUPERVISOR = re.compile(r"(\d+)-\d+\.socket$")
_MOST_BYTES = 64 << 20
_OF_RANK = re.compile(r"<h2>Rank (\d+): [^<]*</h2>\s*<pre>(?={)")
"""Where the JSON of a rank begins on the page of the debug server."""


def find_record(ranks: list[Rank]) -> Record | None:
    """Return the record that `lab record` writes of these ranks; None if there is none."""
    pids = {rank.pid for rank in ranks}
    for name in {rank.environment.get(SOCKET_VARIABLE, "") for rank in ranks}:
        with suppress(OSError):
            supervisor = _SUPERVISOR.search(name)
            paths = map(os.readlink, Path(f"/proc/{supervisor[1]}/fd").iterdir() if supervisor else ())
            for record in [Record(path=Path(path).parent) for path in paths if os.path.basename(path) == EVENTS]:
                if pids & ranks_of(record).keys():
                    return record
    return None


def ranks_of(record: Record) -> dict[int, int]:
    """Return the ranks of a record by their process ids."""
    return {event.pid: event.rank for event in record.events() if isinstance(event, Started)}


def read_dumps(port: int | None, timeout_s: float, folder: Path) -> Evidence | None:
    """Return the calls in flight recorder dumps of a debug server; None if it returns none.

    Args:
        port: of the server; None: there is none.
        timeout_s: for its answer.
        folder: for the dumps and their record.
    """
    connection = http.client.HTTPConnection("localhost", port or 0, timeout=timeout_s)
    with closing(connection), suppress(OSError, http.client.HTTPException, ValueError, LabError):
        connection.request("GET", "/fr_trace_json")
        page, decoder = connection.getresponse().read(_MOST_BYTES).decode(), json.JSONDecoder()
        for one in _OF_RANK.finditer(page):
            (folder / f"rank_{one[1]}").write_text(json.dumps(decoder.raw_decode(page, one.end())[0]))
        return read_evidence(import_dumps(Dumps(folder), "job", folder / "runs"))
    return None
