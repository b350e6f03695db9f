"""The flight recorder dumps in a folder: pickles as NCCL's watchdog leaves them, or what `fr_trace_json` answers."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from lab.errors import RecordError
from lab.features.dumps.dump import Dump, MembersReader, printable, read_dump
from lab.features.dumps.limits import DEFAULT, HINT, Limits
from lab.features.dumps.pickled import NotPlain, read_plain
from lab.record.layout import MOST_RANKS
from lab.words import clip_middle, format_limit, listing, plural

_MOST_BYTES = 64 << 20
"""Of a file; one of 2,000 calls with their stacks has one or two."""
_MOST_JSON_VALUES = 8_000_000
"""Each takes up to 100 bytes of memory, and only 3 bytes of the file."""
_REPORTED = 3
"""Problems in the message of an import that fails."""
_MOST_PROBLEMS = 20
"""Problems with files that an import names; it counts the others."""
_LONGEST_NAME = 100
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_KINDS = {stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}


class _Share(NamedTuple):
    """What is read of each rank's dump."""

    calls: int
    items: int
    """Of lists of tensors, sizes and frames."""


@dataclass
class Dumps:
    """What was found."""

    by_rank: dict[int, Dump] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """What could not be read, a sentence each."""
    limits: Limits = DEFAULT


def read_folder(folder: Path, limits: Limits = DEFAULT) -> Dumps:
    """The dump of each rank; what cannot be read is told by `problems`.

    Raises:
        RecordError: there is none, or there are more than the limits allow.
    """
    found, names = Dumps(limits=limits), dict[int, str]()
    problems: list[str] = []
    files = _find_files(folder, limits, problems)
    ranks = max(1, len({rank for rank, _ in files.values()}))
    share = _Share(max(1, limits.calls // ranks), 2 * limits.work // ranks)
    members = MembersReader(limits)
    for name, (rank, _) in files.items():
        try:
            if rank in names:
                raise NotPlain(f"is another dump of rank {rank}, beside {_shown(names[rank])}")
            dump = _read(folder, name, rank, share, members)
        except NotPlain as error:
            problems.append(f"{_shown(name)} {error}")
            continue
        found.by_rank[rank], names[rank] = dump, name
        if dump.damaged:
            problems.append(f"{_shown(name)}: {plural(dump.damaged, 'call')} of it cannot be read")
    if not found.by_rank:
        why = listing(problems[:_REPORTED]) or "no file's name ends in the number of a rank, as nccl_trace_rank_0 does"
        more = f", and {len(problems) - _REPORTED:,} more" if len(problems) > _REPORTED else ""
        raise RecordError(f"there are no flight recorder dumps in {folder}: {why}{more}")
    found.problems += problems[:_MOST_PROBLEMS]
    if len(problems) > _MOST_PROBLEMS:
        found.problems.append(f"{len(problems) - _MOST_PROBLEMS:,} more files have problems like these")
    return found


def _find_files(folder: Path, limits: Limits, problems: list[str]) -> dict[str, tuple[int, int]]:
    """The rank and the size in bytes of each file that is named as a dump, sorted by name; adds to the problems."""
    found, seen = dict[str, tuple[int, int]](), 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                seen += 1
                if seen > limits.files:
                    raise RecordError(f"{folder} holds more than {limits.files:,} files, the most that are read", HINT)
                rank = _rank_of(entry.name)
                if rank is None:
                    continue
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(about.st_mode):
                    found[entry.name] = rank, about.st_size
                else:
                    kind = _KINDS.get(stat.S_IFMT(about.st_mode), "a device")
                    problems.append(f"{_shown(entry.name)} is {kind}, and only regular files are read")
    except OSError as error:
        raise RecordError(f"{folder} cannot be read: {error.strerror}", "name the folder with the dumps") from error
    size = sum(size for _, size in found.values() if size <= _MOST_BYTES)
    if size > limits.size_bytes:
        what = f"{folder} holds {format_limit(size)} of dumps in {plural(len(found), 'file')}"
        raise RecordError(f"{what}; allowed: {format_limit(limits.size_bytes)}", HINT)
    return dict(sorted(found.items()))


def _shown(name: str) -> str:
    """The name of a file in a message."""
    return clip_middle(printable(name), _LONGEST_NAME)


def _rank_of(name: str) -> int | None:
    """The number at the end of a file's name, as in `nccl_trace_rank_12`, `rank12.json`."""
    numbers = re.search(r"(?<!\d)([0-9]{1,7})(?:\.(?:json|pkl|pickle|bin|dump))?\Z", name)
    rank = int(numbers[1]) if numbers is not None else None
    return rank if rank is not None and rank < MOST_RANKS else None


def _read(folder: Path, name: str, rank: int, share: _Share, members: MembersReader) -> Dump:
    try:
        with open(os.open(folder / name, _READ), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise NotPlain("is no regular file")
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise NotPlain(f"cannot be read: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise NotPlain(f"is larger than {_MOST_BYTES >> 20} MiB, which no dump is")
    if not data:
        raise NotPlain("is empty")
    plain = _json(data) if data.lstrip()[:1] == b"{" else read_plain(data)
    return read_dump(rank, plain, len(data), share.calls, share.items, members)


def _json(data: bytes) -> Any:
    if sum(map(data.count, (b",", b"[", b"{"))) > _MOST_JSON_VALUES:
        raise NotPlain(f"holds more than {_MOST_JSON_VALUES:,} values, which no dump does")
    try:
        return json.loads(data.decode("utf-8", "replace"), parse_int=_int, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        raise NotPlain("is no JSON, and no pickle") from None


def _int(digits: str) -> int | None:
    return int(digits) if len(digits) < 20 else None
