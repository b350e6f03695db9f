"""A trace as Holistic Trace Analysis reads traces of GPUs: a file of each rank, in Chrome's trace event format.

HTA takes what runs on a stream of a GPU for work, and what of it is called `nccl...Kernel...` for communication, and
says how much of that ran beside other work. So each rank has two streams here: on one its own work, which is all the
time in which no call held it up, on the other its calls. Times are whole microseconds, as HTA rounds others.
https://github.com/facebookresearch/HolisticTraceAnalysis
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from lab.trace.model import Call, RankTrace, Trace
from lab.trace.timing import Span, blocked_spans, ready_at

_WORK_STREAM, _CALL_STREAM = 7, 20


def hta_traces(trace: Trace) -> Iterator[tuple[str, bytes]]:
    """The file of each rank that has a trace, with its name."""
    for rank in trace.ranks.values():
        if rank.recorded:
            about = {"backend": "nccl", "rank": rank.rank, "world_size": trace.world_size}
            data = {"schemaVersion": 1, "distributedInfo": about, "traceEvents": [*_events(rank)]}
            yield f"rank{rank.rank}.json", json.dumps(data, separators=(",", ":")).encode()


def _events(rank: RankTrace) -> Iterator[dict[str, Any]]:
    pieces = [("own work", span, _WORK_STREAM) for span in own_work(rank)]
    pieces += [
        (_kernel(call), (call.begin, rank.last if call.end is None else call.end), _CALL_STREAM) for call in rank.calls
    ]
    for number, (name, (begin, end), stream) in enumerate(pieces, start=1):
        start = round(begin * 1e6)
        yield {
            "ph": "X",
            "cat": "kernel",
            "name": name,
            "pid": rank.rank,
            "tid": stream,
            "ts": start,
            "dur": max(0, round(end * 1e6) - start),
            "args": {"device": rank.rank, "stream": stream, "correlation": number},
        }


def own_work(rank: RankTrace) -> list[Span]:
    """When no call held a rank up, from the end of init_process_group to its last line, for a microsecond or more."""
    free, spans = ready_at(rank), list[Span]()
    for begin, end in sorted(blocked_spans(rank).values()):
        if round((begin - free) * 1e6) > 0:
            spans.append((free, begin))
        free = max(free, end)
    return [*spans, (free, rank.last)] if round((rank.last - free) * 1e6) > 0 else spans


def _kernel(call: Call) -> str:
    """`ncclDevKernel_AllReduce`: what NCCL would have called it."""
    return f"ncclDevKernel_{''.join(word.capitalize() for word in call.op.split('_'))}"
