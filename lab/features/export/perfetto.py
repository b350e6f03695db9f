"""A trace in Perfetto's own format, messages of Protocol Buffers, for https://ui.perfetto.dev and `trace_processor`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab import DISTRIBUTION
from lab.errors import UsageError
from lab.features.export.tracks import RankTracks, Slice, make_tracks
from lab.record.read import Record
from lab.trace.model import Trace
from lab.trace.steps import Step

_VARINT, _LENGTH = 0, 2
"""The kinds of fields that are written."""


def varint(number: int) -> bytes:
    """A whole number that is not negative, seven bits a byte."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def whole(field: int, number: int) -> bytes:
    """A field of type uint32, uint64, int32, int64, bool or an enum, which is not negative."""
    return varint(field << 3 | _VARINT) + varint(number)


def packed(field: int, numbers: list[int]) -> bytes:
    """A repeated field of such numbers; nothing where there are none."""
    return message(field, b"".join(map(varint, numbers))) if numbers else b""


def text(field: int, words: str) -> bytes:
    """A field of type string."""
    return message(field, words.encode("utf-8", "replace"))


def message(field: int, body: bytes) -> bytes:
    """A field that is a message."""
    return varint(field << 3 | _LENGTH) + varint(len(body)) + body


def delimited(body: bytes) -> bytes:
    """A message as it stands in a file of many: behind its length."""
    return varint(len(body)) + body


_SEQUENCE = 1
_BOOT_TIME, _REAL_TIME = 6, 1
"""`BuiltinClock`; the times of a trace are said to be those of the first."""
_START_NS = 1_000_000_000
"""What the first line of the run is moved to: a viewer takes time 0 for a missing time."""


def perfetto_trace(record: Record, trace: Trace, steps: Sequence[Step]) -> bytes:
    """The whole file.

    Raises:
        UsageError: the package that knows the format is not installed.
    """
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto
    except ImportError:
        raise UsageError(
            "Perfetto's format needs the package perfetto, which is not installed",
            f"pip install '{DISTRIBUTION}[perfetto]'; or take --chrome, which Perfetto's UI opens as well",
        ) from None
    return _Writer(proto).write(trace, make_tracks(record, trace, steps))


class _Writer:
    """Writes packets; numbers tracks."""

    def __init__(self, messages: Any) -> None:
        self._proto = messages
        self._tracks = 0
        self._written: list[bytes] = []

    def write(self, trace: Trace, ranks: list[RankTracks]) -> bytes:
        times = {_BOOT_TIME: _START_NS, _REAL_TIME: round(trace.origin * 1e9)}
        clocks = [{"clock_id": clock, "timestamp": time} for clock, time in times.items()]
        cleared = self._proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        first = {"sequence_flags": cleared, "first_packet_on_sequence": True}
        self._packet(timestamp=_START_NS, clock_snapshot={"clocks": clocks}, **first)
        pids: dict[str, int] = {}
        for track in ranks:
            if track.node not in pids:
                pids[track.node] = len(pids) + 1
                self._track(process={"pid": pids[track.node], "process_name": track.node or "nodes"})
            self._rank(track, pids[track.node])
        return b"".join(self._written)

    def _rank(self, track: RankTracks, pid: int) -> None:
        name = f"rank {track.rank}"
        own = self._track(thread={"pid": pid, "tid": 1000 + track.rank, "thread_name": name})
        for number, lane in enumerate(track.lanes):
            self._lane(lane, self._track(parent_uuid=own, name=f"{name} overlapping {number}") if number else own)
        if track.moments:
            uuid = self._track(parent_uuid=own, name=f"{name} output")
            for moment in track.moments:
                self._named(moment, uuid, self._proto.TrackEvent.TYPE_INSTANT)
        if track.in_flight:
            counter = {"unit": self._proto.CounterDescriptor.UNIT_SIZE_BYTES}
            uuid = self._track(parent_uuid=own, name=f"{name} bytes in flight", counter=counter)
            for time, size in track.in_flight:
                self._event(time, uuid, self._proto.TrackEvent.TYPE_COUNTER, counter_value=size)

    def _lane(self, lane: list[Slice], uuid: int) -> None:
        """Slices of a track as beginnings and ends, in the order of a stack."""
        ends: list[int] = []
        for one in lane:
            while ends and ends[-1] <= one.begin:
                self._event(ends.pop(), uuid, self._proto.TrackEvent.TYPE_SLICE_END)
            ends.append(one.end)
            flows = {"flow_ids": one.leaving, "terminating_flow_ids": one.arriving}
            self._named(one, uuid, self._proto.TrackEvent.TYPE_SLICE_BEGIN, **flows)
        for end in reversed(ends):
            self._event(end, uuid, self._proto.TrackEvent.TYPE_SLICE_END)

    def _named(self, one: Slice, uuid: int, kind: int, **fields: Any) -> None:
        told = [{"name": name, **_value(value)} for name, value in one.details.items()]
        self._event(
            one.begin, uuid, kind, name=one.name or None, categories=[one.kind], debug_annotations=told, **fields
        )

    def _track(self, **fields: Any) -> int:
        self._tracks += 1
        self._packet(track_descriptor={"uuid": self._tracks, **fields})
        return self._tracks

    def _event(self, time: int, uuid: int, kind: int, **fields: Any) -> None:
        self._packet(timestamp=_START_NS + time, track_event={"type": kind, "track_uuid": uuid, **fields})

    def _packet(self, **fields: Any) -> None:
        packet = self._proto.TracePacket(trusted_packet_sequence_id=_SEQUENCE, **fields)
        self._written.append(self._proto.Trace(packet=[packet]).SerializeToString())


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"int_value": value}
    return {"double_value": value} if isinstance(value, float) else {"string_value": str(value)}
