"""What the ranks of a run called, as text that a person reads and that later runs are compared with.

A line is a call in the notation of `expect: calls:`, with all that is the same in every run of the same program. Ranks
that called the same stand together, and what repeats is written once:

    ranks 0-2:
      broadcast float32[165] from 0
      20 times:
        all_reduce SUM float32[1024] async bucket 1 during backward
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lab.errors import LabError, ScenarioError
from lab.features.calls.notation import Repeated, fold, render_call
from lab.features.calls.pattern import ANYTHING, parse_calls
from lab.record.layout import MOST_RANKS
from lab.spec.reading import shown
from lab.trace.model import Call, RankTrace, Trace
from lab.words import plural, rank_spans

Calls = Mapping[int, Sequence[str]]
"""What each rank called, by rank: every call as a line."""
MOST_CALLS = 1_000_000
"""Most calls that the lines of a rank may stand for."""
_LONGEST_ROUND = 1000
"""Most calls of which a repetition is noticed."""
_LONGEST_LINE = 1 << 16
_NOTHING = "nothing"
_OBJECT = "_object"
"""In the names of what sends objects."""
_INDENT = "  "
_SECTION = re.compile(r"ranks? (\d+(?:-\d+)?(?:, \d+(?:-\d+)?)*):")
_TIMES = re.compile(r"(\d{1,9}) times:")
_ALLOWED = "a call such as `all_reduce SUM float32[45]`, `20 times:`, or `ranks 0-2:` at the beginning of a line"


class SnapshotDamaged(LabError):
    """A file with calls cannot be read; the message begins with `file:line:`."""


def write_calls(calls: Calls, *heading: str) -> str:
    """The text of a file, with comments at its head."""
    alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank, texts in sorted(calls.items()):
        alike[tuple(texts)].append(rank)
    lines = [f"# {line}" for line in heading]
    for texts, ranks in alike.items():
        spans = rank_spans(ranks)
        lines += ["", f"rank{'s' * (len(ranks) > 1)} {', '.join(spans)}:"]
        lines += _lines(fold(texts, _LONGEST_ROUND), 1) if texts else [f"{_INDENT}{_NOTHING}"]
    return "\n".join(lines).strip() + "\n"


def _lines(items: Sequence[str | Repeated], depth: int) -> Iterator[str]:
    for item in items:
        if isinstance(item, str):
            yield f"{_INDENT * depth}{item}"
        else:
            yield f"{_INDENT * depth}{item.times} times:"
            yield from _lines(item.items, depth + 1)


def read_calls(text: str, name: str) -> dict[int, tuple[str, ...]]:
    """What a file says.

    Raises:
        SnapshotDamaged: it says nothing, or something that is no call.
    """
    return _Reader(name).read(text)


class _Reader:
    """Takes a file line by line; `open` are the blocks around a line: indentation, times, calls so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0
        self.found: dict[int, tuple[str, ...]] = {}
        self.ranks: list[int] = []
        self.open: list[tuple[int, int, list[str]]] = []
        self.known: dict[str, tuple[str, ...]] = {}

    def read(self, text: str) -> dict[int, tuple[str, ...]]:
        for line in text.expandtabs(len(_INDENT)).splitlines():
            self.number += 1
            words = line.strip()
            if words and not words.startswith("#"):
                self._take(len(line) - len(line.lstrip()), " ".join(words.split()))
        self._close(0)
        if not self.found:
            raise self._wrong("there is no call", _ALLOWED)
        return dict(sorted(self.found.items()))

    def _take(self, indent: int, words: str) -> None:
        if (section := _SECTION.fullmatch(words)) and not indent:
            self._close(0)
            self.ranks = self._ranks(section[1])
            self.open = [(0, 1, [])]
            return
        if not self.open or not indent:
            raise self._wrong(f"found {shown(words)}", _ALLOWED)
        self._close(indent)
        if repeated := _TIMES.fullmatch(words):
            self.open.append((indent, int(repeated[1]), []))
        elif words != _NOTHING:
            self._add(self._calls(words))

    def _close(self, indent: int) -> None:
        """End the blocks in which a line with this indentation does not stand."""
        while self.open and self.open[-1][0] >= indent:
            _, times, calls = self.open.pop()
            if self.open:
                if len(calls) * times > MOST_CALLS:
                    raise self._wrong(f"found more than {MOST_CALLS} calls", f"up to {MOST_CALLS} of a rank")
                self._add(tuple(calls) * times)
            else:
                self.found.update(dict.fromkeys(self.ranks, tuple(calls)))

    def _add(self, calls: Sequence[str]) -> None:
        inside = self.open[-1][2]
        if len(inside) + len(calls) > MOST_CALLS:
            raise self._wrong(f"found more than {MOST_CALLS} calls", f"up to {MOST_CALLS} of a rank")
        inside.extend(calls)

    def _calls(self, words: str) -> tuple[str, ...]:
        if words not in self.known:
            try:
                patterns = () if "{" in words else parse_calls(words, longest=_LONGEST_LINE)
            except ScenarioError as error:
                raise SnapshotDamaged(f"{self.name}:{self.number}: {error.message}") from None
            if not patterns or ANYTHING in patterns:
                raise self._wrong(f"found {shown(words)}", _ALLOWED)
            self.known[words] = tuple(pattern.text for pattern in patterns)
        return self.known[words]

    def _ranks(self, spans: str) -> list[int]:
        ranks: list[int] = []
        for span in spans.split(", "):
            first, _, last = span.partition("-")
            if max(len(first), len(last)) > 8 or not int(first) <= int(last or first) < MOST_RANKS:
                raise self._wrong(f"found ranks {span}", f"ranks from 0 to {MOST_RANKS - 1}, such as 0-2")
            ranks += range(int(first), int(last or first) + 1)
            if len(ranks) > MOST_RANKS:
                raise self._wrong(f"found more than {MOST_RANKS:,} ranks on one line", "each rank once")
        twice = [rank for rank in ranks if rank in self.found]
        if twice or len(set(ranks)) < len(ranks):
            raise self._wrong(f"found rank {(twice or ranks)[0]} again", "each rank once")
        return ranks

    def _wrong(self, found: str, allowed: str) -> SnapshotDamaged:
        return SnapshotDamaged(f"{self.name}:{self.number}: {found}; allowed: {allowed}")


def counted(calls: Calls) -> str:
    """`24 calls of 3 ranks`."""
    return f"{plural(sum(map(len, calls.values())), 'call')} of {plural(len(calls), 'rank')}"


def texts_of(trace: Trace) -> Mapping[int, tuple[str, ...]]:
    """All that was called, by rank, as far as it is the same in every run of the same program."""
    found = {}
    for rank, calls in settled_calls(trace).items():
        pickled, phase = _pickled(trace.ranks[rank].calls), not trace.ranks[rank].threads
        found[rank] = tuple(
            render_call(call, trace.groups, phase=phase, whole=True, sizes=call.index not in pickled) for call in calls
        )
    return found


def settled_calls(trace: Trace) -> dict[int, list[Call]]:
    """The calls of each rank in the order of the program.

    Where several threads of a rank make calls, that is an order only within a group, and between the same two ranks:
    so the calls of one group stand together there, its messages by what they are.
    """
    return {rank: _by_group(of, trace) if of.threads else of.calls for rank, of in sorted(trace.ranks.items())}


def _by_group(rank: RankTrace, trace: Trace) -> list[Call]:
    def place(call: Call) -> tuple[object, ...]:
        group = trace.groups.get(call.group)
        message = (
            (call.op, -1 if call.peer is None or call.from_any else call.peer, call.tag) if call.seq is None else ()
        )
        return group.title if group is not None else call.group, call.seq is None, message

    return sorted(rank.calls, key=place)


def _pickled(calls: Iterable[Call]) -> set[int]:
    """The calls that send pickled objects, whose lengths are those of their values: paths, times, names.

    PyTorch tells the length before the bytes, and not by the function that the script would call to send bytes.
    """
    found = set()
    last: dict[str, Call] = {}
    for call in calls:
        before = last.get(call.group)
        if call.own and all(tensor.dtype == "uint8" and len(tensor.shape) == 1 for tensor in call.own):
            told = before is not None and (before.source, before.via) == (call.source, call.via) and _is_length(before)
            own = call.via.rpartition(".")[2] != call.op and call.phase != "backward"
            if _OBJECT in call.via or (told and own):
                found.add(call.index)
        last[call.group] = call
    return found


def _is_length(call: Call) -> bool:
    return [(tensor.dtype, len(tensor.shape)) for tensor in call.own] == [("int64", 1)]
