"""Draw mutants from what a run did: only those that change something that happens. Deterministic by seed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

from lab.features.mutants.on_node.mutant import BEHAVIORS, CALLS, KINDS, Mutant
from lab.frozen import Frozen
from lab.record.layout import MOST_RANKS, TRACE
from lab.record.read import Record
from lab.record.record_files import MOST_LINES_BYTES, list_names, open_file

_DTYPES = {"float32": "float64", "float64": "float32", "int64": "int32", "int32": "int64", "bfloat16": "float32"}
"""Another dtype for each."""
_REDUCTIONS = ("SUM", "MAX", "MIN", "PRODUCT")
_OPS = ("all_reduce", "broadcast", "reduce", "barrier")
_SLEEP_S, _FACTOR, _TAG = "0.3", "10", 7
_BATCH = "batch_isend_irecv"
_OPERATION_OF = {"isend": "send", "irecv": "recv"}
_DATA = ("batch", "sampler", "init_process_group")


class Event(Frozen):
    """A call, or a phase of a training step, that a mutant can change."""

    rank: int
    target: str
    """The operation, or the phase."""
    nth: int
    """Of its name on its rank, from 1."""
    at: str = ""
    """The line of the script."""
    via: str = ""
    """The function that this line called."""
    facts: Mapping[str, Any]
    """`g`, `size`, `dtype`, `elements`, `async`, `red`, `root`, `peer`, `tag`, `split`, of a call."""

    @property
    def is_call(self) -> bool:
        """Whether it is a call."""
        return self.target in CALLS

    @property
    def is_message(self) -> bool:
        """Whether it is a message between two ranks."""
        return self.target in ("send", "recv")

    @property
    def is_direct(self) -> bool:
        """Whether the script's own line makes the call, and not a library."""
        return _OPERATION_OF.get(self.via, self.via) == self.target

    @property
    def blocks(self) -> bool:
        """Whether the script continues only after the call."""
        return self.facts.get("async") is False or self.via in ("send", "recv")

    @property
    def signature(self) -> tuple[Any, ...]:
        """What has to fit the calls of other ranks."""
        names = ("g", "dtype", "elements", "red", "root", "peer", "tag")
        return (self.target, *(self.facts.get(name) for name in names))


def read_events(record: Record) -> list[Event]:
    """Read the events of a run that observed, those of each rank in order."""
    events = list[Event]()
    for name in sorted(list_names(record.path, TRACE)):
        with open_file(record.path, f"{TRACE}/{name}", MOST_LINES_BYTES) as file:
            lines = [json.loads(line) for line in file if line.startswith(b'{"k":"mutable"')]
        for line in lines:
            facts = {key: line[key] for key in line.keys() - {"k", "t", "n", "nth", "who", "at", "via", "fn"}}
            if facts.get("size", 0) > MOST_RANKS:
                raise ValueError("a world is too large")
            source = {"at": str(line.get("at", "")), "via": str(line.get("via", ""))}
            events.append(Event(rank=line["who"], target=line["n"], nth=line["nth"], facts=facts, **source))
    return events


def is_mutated(record: Record) -> bool:
    """Return whether the mutant of a run changed anything."""
    return any(b'"mutated"' in trace.read_bytes() for trace in record.path.rglob(f"{TRACE}/*"))


class Candidates:
    """The mutants of a run, by kind.

    Args:
        events: what the run did.
        kinds: only these; empty: all.
    """

    def __init__(self, events: Sequence[Event], kinds: Iterable[str] = ()) -> None:
        self._events = [event for event in events if event.at and event.rank >= 0]
        self.by_rank: dict[int, list[Event]] = defaultdict(list)
        for event in self._events:
            self.by_rank[event.rank].append(event)
        self._world = len(self.by_rank)
        self._next = {id(one): other for calls in self._calls() for one, other in pairwise(calls)}
        named = [*kinds] or [*KINDS]
        self.by_kind = {kind: fitting for kind in named if (fitting := [*filter(self._fits(kind), self._events)])}

    def _calls(self) -> Iterator[list[Event]]:
        return ([one for one in events if one.is_call] for events in self.by_rank.values())

    def draw(self, random: Random, kind: str = "") -> tuple[Mutant, Event] | None:
        """Draw a mutant, and the event that it changes; None if there is none.

        Args:
            random: the source of choices.
            kind: of this kind; empty: of any.
        """
        if kind not in self.by_kind and (kind or not self.by_kind):
            return None
        kind = kind or random.choice([*self.by_kind])
        by_line = defaultdict[tuple[str, str], list[Event]](list)
        for event in self.by_kind[kind]:
            by_line[event.target, event.at].append(event)
        event = random.choice(by_line[random.choice([*by_line])])  # each line as often as any other
        ranks = () if kind == "data" else (event.rank,)
        return Mutant(kind, event.target, ranks, event.nth, to=self._parameter(kind, event, random)), event

    def _fits(self, kind: str) -> Callable[[Event], bool]:
        """Return whether a mutant of this kind can change an event."""
        rule: Callable[[Event], bool] = getattr(self, f"_can_{kind}", lambda _: True)
        if kind in BEHAVIORS:
            rule = self._can_behave
        return lambda event: event.target in KINDS[kind].targets and rule(event)

    def _can_behave(self, event: Event) -> bool:
        return event.is_direct or not event.is_call

    def _can_skip(self, event: Event) -> bool:
        library = event.via in (_BATCH, "backward") or event.via.endswith(".backward")
        return self._is_plain(event) or (event.is_call and library) or event.target == "step"

    def _is_plain(self, event: Event) -> bool:
        """Whether it is a call of the script whose arguments can be changed."""
        return event.is_call and event.is_direct and event.facts.get("peer") != -1

    _can_repeat = _can_op = _can_reduction = _can_tag = _is_plain

    def _can_swap(self, event: Event) -> bool:
        other = self._next.get(id(event))
        both = other is not None and self._is_plain(event) and self._is_plain(other) and event.blocks and other.blocks
        return other is not None and both and event.signature != other.signature

    def _can_root(self, event: Event) -> bool:
        return self._is_plain(event) and event.facts["size"] > 1

    def _can_group(self, event: Event) -> bool:
        return self._is_plain(event) and bool(self._other_groups(event))

    def _other_groups(self, event: Event) -> list[str]:
        groups = {str(one.facts["g"]) for one in self.by_rank[event.rank] if one.is_call}
        return sorted(groups - {str(event.facts["g"])})

    def _can_peer(self, event: Event) -> bool:
        return self._is_plain(event) and event.facts["size"] == self._world > 2

    def _can_shape(self, event: Event) -> bool:
        return self._is_plain(event) and event.facts["elements"] > 0

    def _can_dtype(self, event: Event) -> bool:
        return self._is_plain(event) and event.facts["dtype"] in _DTYPES

    def _can_split(self, event: Event) -> bool:
        return self._is_plain(event) and any(map(sum, event.facts.get("split", ()))) and event.facts["size"] > 1

    def _can_nan(self, event: Event) -> bool:
        is_giver = event.target != "recv" and event.facts.get("root", event.rank) == event.rank
        is_float = event.facts.get("dtype", "").startswith(("float", "bfloat")) and event.facts["elements"] > 0
        return event.is_call and is_giver and is_float and not event.via.endswith(("object", "object_list"))

    def _can_change(self, event: Event) -> bool:
        return self._can_unwaited(event) and event.target not in ("recv", "barrier") and event.facts["elements"] > 0

    def _can_unwaited(self, event: Event) -> bool:
        has_handle = event.facts.get("async") is True and (event.via in _OPERATION_OF or not event.is_message)
        return event.is_call and event.is_direct and has_handle

    def _can_drop(self, event: Event) -> bool:
        return event.nth < max(one.nth for one in self.by_rank[event.rank] if one.target == "batch")

    def _parameter(self, kind: str, event: Event, random: Random) -> str:
        facts, size = event.facts, event.facts.get("size", 0)
        if kind == "op":
            return random.choice([name for name in _OPS if name != event.target])
        if kind == "reduction":
            return random.choice([name for name in _REDUCTIONS if name != facts["red"]])
        if kind == "root":
            return str(random.choice([rank for rank in range(size) if rank != facts["root"]]))
        if kind == "group":
            return random.choice(self._other_groups(event))
        if kind == "peer":
            return str(random.choice([rank for rank in range(size) if rank not in (facts["peer"], event.rank)]))
        if kind == "shape":
            return random.choice(["more", "less"]) if facts["elements"] > 1 else "more"
        if kind == "exit":
            return random.choice("01")
        if kind == "dtype":
            return _DTYPES[facts["dtype"]]
        fixed = {"tag": str(facts.get("tag", 0) + _TAG), "sleep": _SLEEP_S, "lr": _FACTOR, "world": str(size + 1)}
        return fixed.get(kind, "")
