"""The flight recorder dumps in a folder: pickles as NCCL's watchdog leaves them, or what `fr_trace_json` answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.dumps.dump import Dump, read_dump
from lab.dumps.pickled import NotPlain, read_plain
from lab.errors import RecordError
from lab.record.layout import MOST_RANKS
from lab.words import listing, plural

_MOST_BYTES = 64 << 20
"""Of a file; one of 2,000 calls with their stacks has one or two."""
_MOST_FILES = 1 << 14
_TOLD = 3


@dataclass
class Dumps:
    """What was found."""

    by_rank: dict[int, Dump] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """What could not be read, a sentence each."""


def read_folder(folder: Path) -> Dumps:
    """The dump of each rank; what cannot be read is told by `problems`.

    Raises:
        RecordError: there is none.
    """
    found, paths = Dumps(), dict[int, Path]()
    for path in _files(folder):
        rank = _rank_of(path)
        if rank is None:
            continue
        try:
            dump = _read(path, rank)
        except NotPlain as error:
            found.problems.append(f"{path.name} {error}")
            continue
        if rank in found.by_rank:
            found.problems.append(f"{path.name} is another dump of rank {rank}, beside {paths[rank].name}")
            continue
        found.by_rank[rank], paths[rank] = dump, path
        if dump.damaged:
            found.problems.append(f"{path.name}: {plural(dump.damaged, 'call')} of it cannot be read")
    if not found.by_rank:
        why = (
            listing(found.problems[:_TOLD]) or "no file's name ends in the number of a rank, as nccl_trace_rank_0 does"
        )
        raise RecordError(f"there are no flight recorder dumps in {folder}: {why}")
    return found


def _files(folder: Path) -> Iterator[Path]:
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise RecordError(f"{folder} cannot be read: {error.strerror}", "name the folder with the dumps") from error
    if len(paths) > _MOST_FILES:
        raise RecordError(f"{folder} holds {len(paths):,} files, and {_MOST_FILES:,} are the most that are read")
    return (path for path in paths if path.is_file())


def _rank_of(path: Path) -> int | None:
    """The number at the end of a file's name, as in `nccl_trace_rank_12`, `rank12.json`."""
    numbers = re.search(r"(?<!\d)(\d{1,7})(?:\.(?:json|pkl|pickle|bin|dump))?$", path.name)
    rank = int(numbers[1]) if numbers is not None else None
    return rank if rank is not None and rank < MOST_RANKS else None


def _read(path: Path, rank: int) -> Dump:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise NotPlain(f"cannot be read: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise NotPlain(f"is larger than {_MOST_BYTES >> 20} MiB, which no dump is")
    if not data:
        raise NotPlain("is empty")
    plain = _json(data) if data.lstrip()[:1] == b"{" else read_plain(data)
    return read_dump(rank, plain, len(data))


def _json(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8", "replace"), parse_int=_int, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        raise NotPlain("is no JSON, and no pickle") from None


def _int(digits: str) -> int | None:
    return int(digits) if len(digits) < 20 else None
