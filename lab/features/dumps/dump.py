"""Read flight recorder dumps from a folder or a file as typed data, within limits; define PyTorch's names in dumps.

A pickle is a program for a small machine, which can call anything. Here Python's own implementation in Python keeps
only opcodes that build lists, dicts, tuples, text, numbers, booleans, and None. PyTorch writes nothing else into flight
recorder dumps. No remaining opcode imports or calls anything. Any other opcode ends the reading. So does data that
needs more memory than `_MOST_MEMORY`, however small the file is.

https://docs.python.org/3/library/pickletools.html describes the opcodes.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import pickletools
import re
import stat
import struct
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, field, replace
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from lab.errors import NotInRecord, RecordError, UsageError
from lab.features.copy.archive import Header
from lab.frozen import Frozen
from lab.node.files import KINDS, READ_FLAGS
from lab.operations import OPERATIONS
from lab.record.layout import MOST_RANKS
from lab.trace.model import Buffer
from lab.words import clip_middle, format_count, format_limit

_MOST_MEMORY = 512 << 20
"""Bytes of all containers; numbers and text need at most twelve times the bytes of the file in addition."""
_CONTAINER, _ITEM, _KEPT = 64, 48, 96
"""Bytes of an empty container or a mark, of an item of a dict, and of an entry of the memo, in CPython 3.10 to 3.14."""
_LONGEST_KEY = 32
"""Bits of an integer that is a key."""
_PLAIN = b"\x80\x95KMJG\x8aX\x8c\x8dN\x88\x89hjae0."
"""Opcodes for the version and frames, numbers, text, constants, the memo, lists, and the end."""
_COSTS = {**dict.fromkeys(b"]}()t\x85\x86\x87", _CONTAINER), **dict.fromkeys(b"qr\x94", _KEPT)}
"""Opcodes that create a container or store into the memo, with the bytes that they need."""
_DAMAGE = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, TypeError, ValueError, struct.error,
    pickle.UnpicklingError,
)  # fmt: skip


_PYTHONS: Any = pickle._Unpickler  # noqa: SLF001 - opcodes of the C implementation cannot be removed


class NotPlain(ValueError):
    """A pickle that holds anything but plain data, or is damaged; the message is the end of a sentence."""


def read_plain(data: bytes) -> Any:
    """Return the data in a pickle.

    Raises:
        NotPlain: It holds anything but plain data, is damaged, or needs too much memory.
    """
    file = io.BytesIO(data)
    machine: Any = _PYTHONS(file)
    machine.dispatch = _Steps()
    try:
        return machine.load()
    except NotPlain:
        raise
    except _DAMAGE:
        raise NotPlain(f"is damaged before byte {file.tell():,}") from None


class _Steps(dict[int, Callable[[Any], None]]):
    """Opcode -> its handler; counts the memory that all of them need."""

    def __init__(self) -> None:
        super().__init__({step: _PYTHONS.dispatch[step] for step in _PLAIN})
        self.left = _MOST_MEMORY
        for step, cost in _COSTS.items():
            self[step] = partial(self._charged, _PYTHONS.dispatch[step], cost)
        self[ord("s")] = self._set_one
        self[ord("u")] = lambda machine: self._set(machine, machine.pop_mark())

    def __missing__(self, step: int) -> Callable[[Any], None]:
        name = next((op.name for op in pickletools.opcodes if op.code == chr(step)), repr(chr(step)))
        raise NotPlain(f"has the pickle opcode {name}; allowed: plain data")

    def _spend(self, size_bytes: int) -> None:
        self.left -= size_bytes
        if self.left < 0:
            raise NotPlain(f"needs more than {format_limit(_MOST_MEMORY)} of memory, which no dump does")

    def _charged(self, step: Callable[[Any], None], cost: int, machine: Any) -> None:
        self._spend(cost)
        step(machine)

    def _set_one(self, machine: Any) -> None:
        value, key = machine.stack.pop(), machine.stack.pop()
        self._set(machine, [key, value])

    def _set(self, machine: Any, items: list[Any]) -> None:
        """Put keys and values into the dict on top of the stack."""
        self._spend(_ITEM * len(items))
        target, keys = machine.stack[-1], items[::2]
        kinds = {*map(type, keys)}
        if type(target) is not dict or len(items) % 2 or not kinds <= {str, int}:
            raise TypeError(target)  # hashing other keys can visit all their contents
        if int in kinds and any(type(key) is int and key.bit_length() > _LONGEST_KEY for key in keys):
            raise TypeError(target)  # multiples of sys.hash_info.modulus share one hash
        target.update(zip(keys, items[1::2], strict=True))


VERSION = "2.10"
"""Version of the format that is written; PyTorch 2.13 uses it."""
OVER = "over"
"""Key in the lab's own dumps, of runs that are over; `torchfrtrace` ignores it."""
COMPLETED, STARTED, SCHEDULED = "completed", "started", "scheduled"
"""States of a call."""
BACKENDS = ("nccl", "ncclx", "xccl", "gloo", "rccl", "rcclx", "mccl", "hccl")
"""Prefixes, before the colon, of the names of calls; `torchfrtrace` refuses others."""
UNDESCRIBED, DEFAULT_GROUP = "undefined", "default_pg"
"""Descriptions of groups without one, and of the group that init_process_group creates."""

_DTYPES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool",
    "complex64": "ComplexFloat", "complex128": "ComplexDouble", "complex32": "ComplexHalf",
    "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
}  # fmt: skip
_FROM_DUMPS = {dumped: name for name, dumped in _DTYPES.items()}
_OTHER_NAMES = {
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "all_gather_single": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "all_reduce_barrier": "barrier",
    "REDUCE_SCATTER_coalesced": "reduce_scatter_tensor_coalesced",
    "all_to_all": "all_to_all",
    "barrier": "barrier",
}
"""Names of operations in dumps that differ, or that have several spellings."""
_OPERATIONS = {(row.dumped or row.name): row.name for row in OPERATIONS.values()} | _OTHER_NAMES
_OF_MESSAGES = ("send", "recv", "coalesced")
"""No other text of a dump may become the name of a function in a script."""
_PEERS = re.compile(r"(\d{1,7})(->|<-)(\d{1,7})")


def dumped_dtype(dtype: str) -> str:
    """Return the name of a dtype in dumps: `Float`."""
    return _DTYPES.get(dtype, dtype[:1].upper() + dtype[1:])


_LARGER = 16


class Limits(Frozen):
    """What an import accepts, and how many calls it keeps; the defaults need less than 20 s on two cores."""

    files: int = 1 << 12
    """Entries of the folder of dumps, and ranks of one group."""
    size_bytes: int = 64 << 20
    """Size of all dumps together."""
    calls: int = 1 << 16
    """Calls of all ranks together; each rank keeps its latest."""
    groups: int = 1 << 12
    """Groups in one dump."""
    members: int = 1 << 24
    """Members of all groups of all dumps together."""
    work: int = 2_000_000
    """Cost of the record, see `lab.features.dumps.record`."""


DEFAULT = Limits()
LARGE = Limits(**{name: _LARGER * most for name, most in asdict(DEFAULT).items()})
"""Limits of `--large`, which needs minutes and some GB of memory."""
HINT = "`--large` reads up to 16 times as much, which takes minutes and some GB of memory"


_LARGEST = 1 << 62
_MOST_TENSORS, _MOST_DIMENSIONS, _MOST_FRAMES = 1 << 16, 64, 1 << 12
_LONGEST_TEXT = 1000
_RANKS = re.compile(r"\[[0-9, ]*\]")
_TORCH = re.compile(r"^<|(^|/)(site|dist)-packages/torch/|/labnode/|/torch/(_\w+|autograd|distributed|nn|optim|utils)/")
_LIBRARY = re.compile(rf"{_TORCH.pattern}|(^|/)(site|dist)-packages/|/lib/python\d")
"""Files of libraries; a call has a line of the script if possible. `labnode` is the lab's own recorder."""
_OWN, _OTHERS, _TORCHS = range(3)


class Entry(Frozen):
    """A call of a rank."""

    number: int
    """Index among all calls of the rank, from 0; a dump holds only the latest."""
    group: str
    """PyTorch's name of the group."""
    description: str
    pg_id: int
    backend: str
    op: str
    """As in traces and scenarios."""
    seq: int
    """Number of the collective in its group."""
    p2p_seq: int
    op_number: int
    """Number among all calls in its group, of any kind."""
    message: bool
    peer: int | None
    """Group rank of the other end of a message; None if unknown."""
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    over: bool
    """Whether it has ended."""
    begun_ns: int
    """Unix time."""
    ended_ns: int | None
    """Unix time when its end was noticed; None if it has not ended, or if unknown."""
    location: tuple[str, int, str]
    """File, line, and function of the script that led to it; empty if unknown."""


class Dump(Frozen):
    """The dump of a rank."""

    rank: int
    entries: tuple[Entry, ...]
    """In the order of the calls."""
    groups: Mapping[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    """By name: its global ranks, if the dump has them, and its description."""
    enqueued: Mapping[str, int] = field(default_factory=dict)
    """By name of a group: number of the rank's last collective there, if the dump has it."""
    damaged: int = 0
    """Number of calls that could not be read."""
    written_ns: int = 0
    """Unix time when its file was written; 0: its job was over."""
    older: int = 0
    """Number of earlier calls that were not read, because there were too many."""

    @cached_property
    def unbroken(self) -> bool:
        """Whether it holds every call of the rank from some call on."""
        return not self.damaged and all(one.number + 1 == two.number for one, two in pairwise(self.entries))

    @property
    def whole(self) -> bool:
        """Whether it holds every call of the rank from the first on."""
        return self.unbroken and not self.older and (not self.entries or self.entries[0].number == 0)

    @property
    def silent_of_messages(self) -> bool:
        """Whether calls are numbered that are not in it: gloo numbers messages but does not dump them."""
        last: dict[str, int] = {}
        for entry in self.entries:
            if entry.backend == "gloo" and entry.op_number > last.get(entry.group, entry.op_number) + 1:
                return True
            last[entry.group] = entry.op_number
        return False


def escape_text(text: str) -> str:
    """Return a name on one line; characters that control a terminal are escaped as in Python."""
    return text if text.isprintable() else repr(text)[1:-1]


class _Spent(Exception):
    """A file exceeds its limit of list items; the rest is not read."""


class _EntryReader:
    """Reads entries, and limits the work on lists that several of them share."""

    def __init__(self, items: int) -> None:
        self.left = items
        """List items that may still be visited; a regular file has fewer than bytes."""

    def entry(self, data: Mapping[str, Any]) -> Entry:
        """Return an entry.

        Raises:
            KeyError, TypeError, ValueError: The data is no entry.
        """
        backend, _, name = _text(data["profiling_name"]).rpartition(":")
        op, _, ends = name.partition(" ")
        group, description = data["process_group"]
        state, ended = data["state"], data.get("time_discovered_completed_ns")
        if state not in (COMPLETED, STARTED, SCHEDULED):
            raise ValueError(state)
        return Entry(
            number=_whole(data["record_id"]),
            group=_text(group),
            description=_text(description),
            pg_id=_whole(data.get("pg_id", 0)),
            backend=backend,
            op=_OPERATIONS.get(op, op),  # an unknown name is kept
            seq=_whole(data["collective_seq_id"]),
            p2p_seq=_whole(data.get("p2p_seq_id", 0)),
            op_number=_whole(data.get("op_id", 0)),
            message=op in _OF_MESSAGES and bool(data.get("is_p2p", op != _OF_MESSAGES[2])),
            peer=int(peers[3]) if (peers := _PEERS.fullmatch(ends)) is not None else None,
            inputs=self._tensors(data["input_sizes"], data.get("input_dtypes")),
            outputs=self._tensors(data["output_sizes"], data.get("output_dtypes")),
            # Only NCCL and similar backends have events. With gloo the state stays `scheduled`, and an ended call is
            # retired. The watchdog gave up on an NCCL call that is retired and not completed.
            over=state == COMPLETED or (state == SCHEDULED and backend == "gloo" and bool(data.get("retired"))),
            begun_ns=_whole(data["time_created_ns"]),
            ended_ns=_whole(ended) if state == COMPLETED and ended else None,
            location=self._script_location(data.get("frames") or ()),
        )

    def _spend(self, items: int, most: int) -> None:
        if items > most:
            raise ValueError(items)
        self.left -= items
        if self.left < 0:
            raise _Spent

    def _tensors(self, sizes: Any, dtypes: Any) -> tuple[Buffer, ...]:
        self._spend(len(sizes), _MOST_TENSORS)
        known = dtypes if isinstance(dtypes, list) and len(dtypes) == len(sizes) else [""] * len(sizes)
        tensors = []
        for dtype, of in zip(map(_text, known), sizes, strict=True):
            self._spend(len(of), _MOST_DIMENSIONS)
            tensors.append(Buffer(_FROM_DUMPS.get(dtype, dtype[:1].lower() + dtype[1:]), tuple(map(_whole, of))))
            _whole(tensors[-1].count)
        return tuple(tensors)

    def _script_location(self, frames: Any) -> tuple[str, int, str]:
        """Return the file, line, and function of the innermost frame outside of libraries.

        Frames are listed from the innermost to the outermost.
        """
        self._spend(len(frames), _MOST_FRAMES)
        frame = min(frames, key=lambda one: _owner(_text(one["filename"])), default=None)
        if frame is None or _owner(_text(frame["filename"])) == _TORCHS:
            return "", 0, ""
        return _text(frame["filename"]), _whole(frame["line"]), _text(frame["name"])


@lru_cache(maxsize=1 << 16)
def _owner(file: str) -> int:
    """Return whose a file is: the script's, another library's, or PyTorch's."""
    return _TORCHS if _TORCH.search(file) else _OTHERS if _LIBRARY.search(file) else _OWN


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _LARGEST:
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > _LONGEST_TEXT:
        raise ValueError(value)
    return escape_text(value)


_MOST_BYTES = 64 << 20
"""Size of a file; a dump of 2,000 calls with stacks has 1 to 2 MiB."""
_MOST_JSON_VALUES = 8_000_000
"""Each value needs up to 100 bytes of memory, and only 3 bytes of the file."""
_REPORTED = 3
"""Problems in the message of a failed import."""
_MOST_PROBLEMS = 20
"""Problems with files that an import lists; it counts the others."""
_LONGEST_NAME = 100
_OF_RANK = re.compile(r"<h2>Rank (\d{1,7}): [^<]*</h2>\s*<pre>(?={)")
"""Where the dump of a rank begins on `/fr_trace_json` of a debug server, see `torch/distributed/debug/_frontend.py`."""


class _Source(NamedTuple):
    """Where the dump of a rank is."""

    name: str
    """For messages."""
    rank: int
    read: Callable[[], tuple[Any, int, int]]
    """Return its data, its size in bytes, and the Unix time in ns when it was written."""


class Dumps:
    """The dumps of a job: in a folder, in a tar, or in one file for all ranks.

    Raises:
        RecordError: There are none, or more than the limits allow.
    """

    def __init__(self, path: Path, limits: Limits = DEFAULT) -> None:
        self.limits = limits
        self.problems: list[str] = []
        """What could not be read, one sentence each."""
        self._members_left, self._bytes_left = limits.members, limits.size_bytes
        self._lists: dict[str, tuple[int, ...] | None] = {}
        """Text -> list of ranks. The ranks of a job mostly have the same lists, which are parsed once."""
        self.by_rank = self._read(path)
        problems = self.problems
        if not self.by_rank:
            no_file = "no file name ends in the number of a rank, as nccl_trace_rank_0 does"
            others = f"; and {len(problems) - _REPORTED:,} more" if len(problems) > _REPORTED else ""
            why = f"{'; '.join(problems[:_REPORTED]) or no_file}{others}"
            raise RecordError(f"there are no flight recorder dumps in {path}: {why}")
        if len(problems) > _MOST_PROBLEMS:
            problems[_MOST_PROBLEMS:] = [f"{len(problems) - _MOST_PROBLEMS:,} more files have problems like these"]

    def _read(self, path: Path) -> dict[int, Dump]:
        """Return the dump of each rank."""
        with NotInRecord.on_os_error(f"cannot read {path}", "name the folder or the file with the dumps"):
            sources = self._find_files(path) if stat.S_ISDIR(path.stat().st_mode) else self._find_parts(path)
        ranks = max(1, len({source.rank for source in sources}))
        most_calls, most_items = max(1, self.limits.calls // ranks), 2 * self.limits.work // ranks
        dumps, shown = dict[int, Dump](), dict[int, str]()
        for name, rank, read in sources:
            try:
                if rank in dumps:
                    raise NotPlain(f"is a second dump of rank {rank}, after {shown[rank]}")
                data, size, written_ns = read()
                self._bytes_left -= size
                if self._bytes_left < 0:
                    raise self._too_large(path)
                dump = self._dump(rank, data, most_calls, min(size, most_items))
                dumps[rank] = replace(dump, written_ns=0 if data.get(OVER) else written_ns)
                shown[rank] = _shown(name)
            except NotPlain as error:
                self.problems.append(f"{_shown(name)} {error}")
                continue
            if dumps[rank].damaged:
                damaged = format_count(dumps[rank].damaged, "call")
                self.problems.append(f"{_shown(name)}: {damaged} of it cannot be read")
        return dumps

    def _too_large(self, path: Path) -> RecordError:
        size = format_limit(self.limits.size_bytes)
        return RecordError(f"{path} holds more than {size} of dumps; allowed: {size}", HINT)

    def _find_files(self, folder: Path) -> list[_Source]:
        """Return each file that is named like a dump, sorted by name."""
        files, size = dict[str, int](), 0
        most = self.limits.files
        with os.scandir(folder) as entries:
            for count, entry in enumerate(entries, start=1):
                if count > most:
                    raise RecordError(f"{folder} has more than {most:,} files; allowed: {most:,}", HINT)
                if (rank := _rank_of(entry.name)) is None:
                    continue
                about, files[entry.name] = entry.stat(follow_symlinks=False), rank
                size += about.st_size if (stat.S_ISREG(about.st_mode) and about.st_size <= _MOST_BYTES) else 0
        if size > self.limits.size_bytes:
            what = f"{folder} holds {format_limit(size)} of dumps in {format_count(len(files), 'file')}"
            raise RecordError(f"{what}; allowed: {format_limit(self.limits.size_bytes)}", HINT)
        return [_Source(name, rank, partial(_read_data, folder / name)) for name, rank in sorted(files.items())]

    def _find_parts(self, path: Path) -> list[_Source]:
        """Return the dumps in one file: a tar, a page or JSON with those of many ranks, or one dump."""
        most = self.limits.size_bytes + 2 * tarfile.BLOCKSIZE * self.limits.files
        try:
            data, written_ns = _read_file(path, most)
            if data[257:262] == b"ustar":
                return self._find_members(data)
            parts = _split(data)
            if not parts and (rank := _rank_of(path.name)) is not None:
                parts = {rank: _parse(data)}
        except _TooLarge:
            raise self._too_large(path) from None
        except (NotPlain, UsageError, tarfile.TarError, RecursionError) as error:
            raise RecordError(f"cannot read {path}: it {error}") from error
        size = len(data) // max(1, len(parts))
        return [
            _Source(f"rank {rank}", rank, partial(tuple, (parts[rank], size, written_ns))) for rank in sorted(parts)
        ]

    def _find_members(self, data: bytes) -> list[_Source]:
        """Return the dumps in a tar, in whatever folder they are; nothing is written."""
        sources = []
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:", tarinfo=Header) as archive:
            for count, member in enumerate(archive, start=1):
                if count > self.limits.files:
                    raise NotPlain(f"has more than {self.limits.files:,} files; allowed: {self.limits.files:,}")
                name = member.name.rpartition("/")[2]
                rank = _rank_of(name) if member.isreg() and not member.issparse() else None
                if rank is not None:
                    start, size, written_ns = member.offset_data, member.size, int(member.mtime * 1e9)
                    sources.append(_Source(name, rank, partial(_read_member, data, start, size, written_ns)))
        return sorted(sources, key=lambda source: source.name)

    def _dump(self, rank: int, data: Any, most_calls: int, items: int) -> Dump:
        """Return a dump with its latest calls, from the plain data of its file.

        Raises:
            NotPlain: It is no flight recorder dump.
            RecordError: With this dump, the dumps name more members of groups than the limits allow.
        """
        if not isinstance(data, dict) or "pg_config" not in data or "version" not in data:
            raise NotPlain("is not a flight recorder dump: it has no version and no pg_config")
        entries = data.get("entries", [])
        if not isinstance(entries, list):
            raise NotPlain("is not a flight recorder dump: its entries are not a list")
        reader, known, damaged = _EntryReader(items), list[Entry](), 0
        for entry in reversed(entries[-most_calls:]):  # the latest calls are last
            try:
                known.append(reader.entry(entry))
            except _Spent:
                break
            except (KeyError, TypeError, ValueError, AttributeError):
                damaged += 1
        if entries and not known:
            raise NotPlain("is not a flight recorder dump: none of its entries can be read")
        names, status = {str(entry.pg_id): entry.group for entry in known}, data.get("pg_status")
        enqueued = {}
        for key, of in status.items() if isinstance(status, dict) else ():
            last = str(of.get("last_enqueued_collective")) if isinstance(of, dict) else ""  # a string in JSON
            if key in names and re.fullmatch(r"[0-9]{1,18}", last):  # -1: none
                enqueued[names[key]] = int(last)
        older, ordered = len(entries) - len(known) - damaged, tuple(sorted(known, key=lambda entry: entry.number))
        groups = self._groups(data["pg_config"])
        return Dump(rank=rank, entries=ordered, groups=groups, enqueued=enqueued, damaged=damaged, older=older)

    def _groups(self, config: Any) -> dict[str, tuple[tuple[int, ...], str]]:
        """Return the ranks and the description of each group; in a dump the ranks are text: `[0, 1]`."""
        config = config if isinstance(config, dict) else {}
        if len(config) > self.limits.groups:
            raise NotPlain(f"has {len(config):,} groups; allowed: {self.limits.groups:,}")
        groups = {}
        for name, of in config.items():
            text = of.get("ranks") if isinstance(of, dict) else None
            ranks = self._ranks(text) if isinstance(text, str) else None
            if ranks is None:
                continue
            self._members_left -= len(ranks)
            if self._members_left < 0:
                allowed = f"allowed: {self.limits.members:,}"
                raise RecordError(f"the groups in the dumps list too many ranks in total; {allowed}", HINT)
            try:
                groups[_text(str(name))] = ranks, _text(of.get("desc", ""))
            except ValueError:
                what = f"no text, or longer than {_LONGEST_TEXT:,} characters"
                raise NotPlain(f"has a group whose name or description is {what}") from None
        return groups

    def _ranks(self, text: str) -> tuple[int, ...] | None:
        """Return the ranks in a list; None if it is not valid."""
        if text not in self._lists:
            count, most = text.count(",") + 1, self.limits.files
            if count > most:
                raise NotPlain(f"has a group of {count:,} ranks; allowed: {most:,}")
            ranks = tuple(map(int, re.findall(r"[0-9]{1,7}", text)))
            fits = all(rank < MOST_RANKS for rank in ranks) and len({*ranks}) == len(ranks) <= most
            self._lists[text] = ranks if fits and _RANKS.fullmatch(text) else None
        return self._lists[text]


def _shown(name: str) -> str:
    """Return the name of a file for a message."""
    return clip_middle(escape_text(name), _LONGEST_NAME)


def _rank_of(name: str) -> int | None:
    """Return the number at the end of a file's name, as in `nccl_trace_rank_12`, `rank12.json`, and `rank_3.gz`."""
    number = re.search(r"(?<!\d)([0-9]{1,7})(?:\.(?:json|pkl|pickle|bin|dump))?(?:\.gz)?\Z", name)
    return int(number[1]) if number is not None and int(number[1]) < MOST_RANKS else None


class _TooLarge(NotPlain):
    """A file that is larger than allowed, maybe only after it is decompressed."""


def _read_file(path: Path, most_bytes: int) -> tuple[bytes, int]:
    """Return the content of a file, decompressed, and the Unix time in ns when it was written."""
    try:
        if not stat.S_ISREG(mode := path.lstat().st_mode):
            raise NotPlain(f"is {KINDS[stat.S_IFMT(mode)]}; allowed: regular files")
        with open(os.open(path, READ_FLAGS), "rb") as file:
            return _inflate(file.read(most_bytes + 1), most_bytes), os.fstat(file.fileno()).st_mtime_ns
    except OSError as error:
        raise NotPlain(f"cannot be read: {error.strerror}") from error


def _inflate(data: bytes, most_bytes: int) -> bytes:
    """Return the content of a gzip file; other data is returned as it is."""
    if data[:2] == b"\x1f\x8b" and len(data) <= most_bytes:
        try:
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(most_bytes + 1)
        except (OSError, EOFError, zlib.error):
            raise NotPlain("is damaged: it cannot be decompressed") from None
    if len(data) > most_bytes:
        raise _TooLarge(f"is larger than {most_bytes >> 20} MiB, which no dump is")
    return data


def _read_data(path: Path) -> tuple[Any, int, int]:
    """Return the plain data of a file, its size in bytes, and the Unix time in ns when it was written."""
    data, written_ns = _read_file(path, _MOST_BYTES)
    return _parse(data), len(data), written_ns


def _read_member(archive: bytes, start: int, size: int, written_ns: int) -> tuple[Any, int, int]:
    """Return the same of a file in a tar."""
    data = _inflate(archive[start : start + size], _MOST_BYTES)
    return _parse(data), len(data), written_ns


def _parse(data: bytes, starts: tuple[bytes, ...] = (b"{",)) -> Any:
    """Return the plain data of JSON or a pickle."""
    if not data:
        raise NotPlain("is empty")
    if data.lstrip()[:1] not in starts:
        return read_plain(data)
    if sum(map(data.count, (b",", b"[", b"{"))) > _MOST_JSON_VALUES:
        raise NotPlain(f"has more than {_MOST_JSON_VALUES:,} values, which no dump has")
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise NotPlain("is neither JSON nor a pickle") from None


def _split(data: bytes) -> dict[int, Any]:
    """Return the dump of each rank in a page of a debug server, or in JSON by rank; empty if it is neither."""
    if data.lstrip()[:1] == b"<":
        text = data.decode("utf-8", "replace")
        ends = [(int(match[1]), match.end(), text.find("</pre>", match.end())) for match in _OF_RANK.finditer(text)]
        return {rank: _parse(text[start:end].encode()) for rank, start, end in ends}
    if data.lstrip()[:1] not in (b"{", b"["):
        return {}
    plain = _parse(data, (b"{", b"["))
    if isinstance(plain, list):
        plain = {str(one.get("rank", at)) if isinstance(one, dict) else at: one for at, one in enumerate(plain)}
    if not isinstance(plain, dict) or "pg_config" in plain:
        return {}
    return {rank: one for name, one in plain.items() if (rank := _rank_of(str(name))) is not None}
