"""A trace in Perfetto's own format, for https://ui.perfetto.dev and `trace_processor`.

A process for each node, a thread for each rank with child tracks for what overlaps and for output, a counter of bytes
in flight, flows for arrows. The messages are those of `perfetto_trace.proto`, from the package `perfetto`:
https://perfetto.dev/docs/reference/synthetic-track-event
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lab.errors import UsageError
from lab.record.read import Record
from lab.report.export.slices import Slice
from lab.report.export.tracks import Moment, RankTracks, make_tracks
from lab.trace.model import Trace
from lab.trace.steps import Step

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

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
            "pip install 'lab[perfetto]'; or take --chrome, which Perfetto's UI opens as well",
        ) from None
    packets = _Writer(proto).packets(trace, make_tracks(record, trace, steps))
    return b"".join(proto.Trace(packet=[packet]).SerializeToString() for packet in packets)


class _Writer:
    """Makes packets; numbers tracks."""

    def __init__(self, messages: Any) -> None:
        self.proto = messages
        self.event = messages.TrackEvent
        self.tracks = 0

    def packets(self, trace: Trace, ranks: list[RankTracks]) -> Iterator[proto.TracePacket]:
        yield self._clocks(trace)
        nodes: dict[str, int] = {}
        for track in ranks:
            if track.node not in nodes:
                nodes[track.node] = pid = len(nodes) + 1
                process = self.proto.ProcessDescriptor(pid=pid, process_name=track.node or "nodes")
                yield self._track(process=process)[1]
            yield from self._rank(track, nodes[track.node])

    def _clocks(self, trace: Trace) -> proto.TracePacket:
        packet = self._packet(_START_NS)
        packet.sequence_flags = self.proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        packet.first_packet_on_sequence = True
        for clock, time in ((_BOOT_TIME, _START_NS), (_REAL_TIME, round(trace.origin * 1e9))):
            packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=time)
        return packet

    def _rank(self, track: RankTracks, pid: int) -> Iterator[proto.TracePacket]:
        thread = self.proto.ThreadDescriptor(pid=pid, tid=1000 + track.rank, thread_name=f"rank {track.rank}")
        own, packet = self._track(thread=thread)
        yield packet
        for number, lane in enumerate(track.lanes):
            uuid = own
            if number:
                uuid, packet = self._track(parent_uuid=own, name=f"rank {track.rank} overlapping {number}")
                yield packet
            yield from self._lane(lane, uuid)
        if track.moments:
            uuid, packet = self._track(parent_uuid=own, name=f"rank {track.rank} output")
            yield packet
            for moment in track.moments:
                yield self._moment(moment, uuid)
        if track.in_flight:
            counter = self.proto.CounterDescriptor(unit=self.proto.CounterDescriptor.UNIT_SIZE_BYTES)
            name = f"rank {track.rank} bytes in flight"
            uuid, packet = self._track(parent_uuid=own, name=name, counter=counter)
            yield packet
            for time, size in track.in_flight:
                packet = self._event(time, uuid, self.event.TYPE_COUNTER)
                packet.track_event.counter_value = size
                yield packet

    def _lane(self, lane: list[Slice], uuid: int) -> Iterator[proto.TracePacket]:
        """Slices of a track as beginnings and ends, in the order of a stack."""
        open_slices: list[Slice] = []
        for one in lane:
            while open_slices and open_slices[-1].end <= one.begin:
                yield self._end(open_slices.pop(), uuid)
            open_slices.append(one)
            yield self._begin(one, uuid)
        while open_slices:
            yield self._end(open_slices.pop(), uuid)

    def _begin(self, one: Slice, uuid: int) -> proto.TracePacket:
        packet = self._event(one.begin, uuid, self.event.TYPE_SLICE_BEGIN, one.name)
        packet.track_event.categories.append(one.kind)
        packet.track_event.flow_ids.extend(one.leaving)
        packet.track_event.terminating_flow_ids.extend(one.arriving)
        self._annotate(packet, one.details)
        return packet

    def _end(self, one: Slice, uuid: int) -> proto.TracePacket:
        return self._event(one.end, uuid, self.event.TYPE_SLICE_END)

    def _moment(self, moment: Moment, uuid: int) -> proto.TracePacket:
        packet = self._event(moment.time, uuid, self.event.TYPE_INSTANT, moment.name)
        packet.track_event.categories.append(moment.kind)
        self._annotate(packet, moment.details)
        return packet

    def _annotate(self, packet: proto.TracePacket, details: dict[str, Any]) -> None:
        for name, value in details.items():
            annotation = packet.track_event.debug_annotations.add(name=name)
            if isinstance(value, int):
                annotation.int_value = value
            elif isinstance(value, float):
                annotation.double_value = value
            else:
                annotation.string_value = str(value)

    def _track(self, **fields: Any) -> tuple[int, proto.TracePacket]:
        self.tracks += 1
        packet = self.proto.TracePacket(trusted_packet_sequence_id=_SEQUENCE)
        packet.track_descriptor.CopyFrom(self.proto.TrackDescriptor(uuid=self.tracks, **fields))
        return self.tracks, packet

    def _event(self, time: int, uuid: int, kind: int, name: str = "") -> proto.TracePacket:
        packet = self._packet(_START_NS + time)
        packet.track_event.type = kind
        packet.track_event.track_uuid = uuid
        if name:
            packet.track_event.name = name
        return packet

    def _packet(self, time: int) -> proto.TracePacket:
        return self.proto.TracePacket(timestamp=time, trusted_packet_sequence_id=_SEQUENCE)
