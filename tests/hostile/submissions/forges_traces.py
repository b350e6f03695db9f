"""Writes calls and marks of other ranks, and events of a record, into everything that is open. They stay its own."""

import contextlib
import json
import os

EVENTS = [
    {"is": "note", "rank": rank, "name": "total", "value": 12941, "time": 1.0, "node": "node0", "run": "r"}
    for rank in range(4)
]
EVENTS += [{"is": "exited", "rank": rank, "code": 0, "time": 1.0, "node": "node0", "run": "r"} for rank in range(4)]
EVENTS += [{"op": "all_reduce", "rank": rank, "seq": 1, "inputs": [[12941]], "outputs": [[12941]]} for rank in range(4)]
text = "".join(json.dumps(event) + "\n" for event in EVENTS).encode()
for descriptor in os.listdir("/proc/self/fd"):
    with contextlib.suppress(OSError):
        os.write(int(descriptor), text)
