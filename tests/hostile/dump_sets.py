"""Folders of hostile flight recorder dumps, each written by one function.

A function with a `size` writes the set in any size; it says at what size the set is tried in every run of the tests.
The default is the size at which a limit of the lab or of the machine is met, which takes long.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.features.dumps.made import BEGUN, dump, entry, waiting

Data = dict[str, Any]
SETS: dict[str, Callable[..., None]] = {}
USUAL: dict[str, int] = {}
"""By name of a set that takes long: the size that takes seconds."""


def hostile(write: Callable[[Path], None]) -> Callable[[Path], None]:
    """Add a folder of dumps to those that are imported."""
    SETS[write.__name__] = write
    return write


def sized(usual: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a folder of dumps that is imported at this size, and at its full size where that may take long."""

    def add(write: Callable[..., None]) -> Callable[..., None]:
        SETS[write.__name__], USUAL[write.__name__] = write, usual
        return write

    return add


def call(number: int, **fields: Any) -> Data:
    """A call without a stack."""
    return {
        "record_id": number,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number + 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": BEGUN + number * 1000,
        "input_sizes": [[4]],
        "output_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_completed_ns": BEGUN + number * 1000 + 500,
        **fields,
    }


def started(number: int, **fields: Any) -> Data:
    """A call that has not ended."""
    return call(number, **{"state": "started", "time_discovered_completed_ns": None, **fields})


def write(folder: Path, data: Any, ranks: int = 1) -> None:
    """The same dump of several ranks."""
    pickled = data if isinstance(data, bytes) else pickle.dumps(data, protocol=2)
    for rank in range(ranks):
        (folder / f"rank_{rank}").write_bytes(pickled)


def groups(count: int, ranks: Sequence[int]) -> Data:
    """What `pg_config` says of so many groups."""
    text = str([*ranks])  # stands in the file once, which is small
    return {str(i): {"name": str(i), "desc": f"g{i}", "ranks": text} for i in range(count)}


@sized(2_000)
def one_rank_of_300_000_calls(folder: Path, size: int = 300_000) -> None:
    write(folder, dump([call(number) for number in range(size)], range(1)))


@sized(2_000)
def json_of_180_000_calls(folder: Path, size: int = 180_000) -> None:
    (folder / "rank0.json").write_text(json.dumps(dump([call(number) for number in range(size)], range(2))))


@sized(10_000)
def three_million_references_to_one_call(folder: Path, size: int = 3_000_000) -> None:
    write(folder, dump([call(0)] * size, range(2)))


@hostile
def a_hundred_thousand_ranks_in_a_group(folder: Path) -> None:
    write(folder, dump([entry(0), waiting(1)], range(100_000)), ranks=4)


@sized(5_000)
def a_hundred_thousand_files(folder: Path, size: int = 100_000) -> None:
    for rank in range(size):
        os.close(os.open(f"{folder}/rank_{rank}", os.O_CREAT | os.O_WRONLY))


@sized(5_000)
def a_hundred_thousand_groups(folder: Path, size: int = 100_000) -> None:
    write(folder, dump([entry(0), waiting(1)], pg_config=groups(size, range(4))), ranks=2)


@sized(50)
def calls_in_four_thousand_groups(folder: Path, size: int = 4_000) -> None:
    calls = [started(i, process_group=(str(i), ""), collective_seq_id=1) for i in range(size)]
    write(folder, dump(calls, pg_config=groups(size, range(4))), ranks=4)


@hostile
def a_thousand_groups_of_100_000_ranks(folder: Path) -> None:
    write(folder, dump([entry(0), waiting(1)], pg_config=groups(1, range(100_000)) | groups(1000, range(99_999))))


@hostile
def groups_with_more_members_than_allowed(folder: Path) -> None:
    write(folder, dump([entry(0), waiting(1)], pg_config=groups(4000, range(4000))), ranks=2)


@sized(30)
def as_many_lists_of_members_as_ranks(folder: Path, size: int = 1_000) -> None:
    for rank in range(size):
        data = dump([call(0), started(1)], [rank, *(other for other in range(300) if other != rank)])
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(data, protocol=2))


@hostile
def an_all_gather_of_50_million_ranks(folder: Path) -> None:
    gathered = {"profiling_name": "nccl:all_gather", "output_sizes": [[50_000_000, 4]]}
    write(folder, dump([call(0, **gathered)], pg_config={}), ranks=2)


@sized(100)
def tensors_for_each_of_4_000_ranks(folder: Path, size: int = 4_000) -> None:
    gathered = {"profiling_name": "nccl:all_gather", "output_sizes": [[size, 4]]}
    write(folder, dump([call(i, **gathered) for i in range(size // 2)], range(size)), ranks=4)


@sized(1_200)
def thirty_million_tensors(folder: Path, size: int = 60_000) -> None:
    about = {"input_sizes": [[2, 2]] * size, "input_dtypes": ["Float"] * size}
    write(folder, dump([call(i, **about) for i in range(size // 120)], range(2)))


@sized(500)
def stacks_of_4_000_shared_frames(folder: Path, size: int = 100_000) -> None:
    frames = [{"name": "f", "filename": f"/x/site-packages/torch/{i}.py", "line": i} for i in range(4000)]
    write(folder, dump([call(i, frames=frames) for i in range(size)]))


@hostile
def billion_laughs(folder: Path) -> None:
    laughs: Any = ["ha"] * 10
    for _ in range(100):
        laughs = [laughs] * 10
    for rank, data in enumerate(
        (dump([call(0, input_sizes=laughs)]), dump([], pg_config=laughs), dump([call(0, frames=laughs)]), laughs)
    ):
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(data, protocol=2))


@hostile
def keys_that_take_for_ever_to_hash(folder: Path) -> None:
    pairs = b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(200))  # each a pair of the one before, twice
    write(folder, b"\x80\x02})q\x00" + pairs + b"K\x01s.")


@hostile
def keys_with_one_hash(folder: Path) -> None:
    modulus = (1 << 61) - 1
    pairs = b"".join(pickle.dumps(i * modulus, protocol=2)[2:-1] + b"N" for i in range(1, 100_000))
    write(folder, b"\x80\x02}(" + pairs + b"u.")  # Python itself would take minutes to make such a dict


@sized(600_000)
def sixty_million_empty_lists(folder: Path, size: int = 60_000_000) -> None:
    write(folder, b"\x80\x02](" + b"]" * size + b"e.")


@sized(600_000)
def sixty_million_marks(folder: Path, size: int = 60_000_000) -> None:
    write(folder, b"\x80\x02" + b"(" * size + b".")


@sized(20_000_000)
def sixty_million_entries_of_the_memo(folder: Path, size: int = 60_000_000) -> None:
    write(folder, b"\x80\x04N" + b"\x94" * size + b".")


@sized(600_000)
def sixty_million_nones(folder: Path, size: int = 60_000_000) -> None:
    write(folder, b"\x80\x02](" + b"N" * size + b"e.")


@hostile
def twenty_million_empty_lists_of_json(folder: Path) -> None:
    (folder / "rank0.json").write_bytes(b'{"version":"2.10","pg_config":{},"entries":[' + b"[]," * 20_000_000 + b"[]]}")


@hostile
def json_nested_a_million_deep(folder: Path) -> None:
    (folder / "rank0.json").write_text('{"version":1,"pg_config":' + "[" * 1_000_000)


@sized(100_000)
def pickles_nested_a_million_deep(folder: Path, size: int = 1_000_000) -> None:
    write(folder, b"\x80\x02" + b"]" * size + b"a" * (size - 1) + b".")


@hostile
def a_text_of_50_million_characters(folder: Path) -> None:
    write(folder, dump([call(0, profiling_name="nccl:" + "A" * 50_000_000)]))


@sized(500)
def names_of_900_characters(folder: Path, size: int = 30_000) -> None:
    write(folder, dump([call(i, profiling_name="nccl:" + "y" * 900 + str(i)) for i in range(size)], range(2)))


@hostile
def huge_and_negative_numbers(folder: Path) -> None:
    numbers = [-1, 1 << 62, 1 << 2000, float("nan"), float("inf"), True, None, "1", 1 << 61]
    fields = ("record_id", "collective_seq_id", "time_created_ns", "time_discovered_completed_ns", "pg_id", "op_id")
    odd = [call(i, **{field: number}) for field in fields for i, number in enumerate(numbers)]
    odd += [call(i, input_sizes=[[number, number]]) for i, number in enumerate(numbers)]
    write(folder, dump([*odd, call(1), started(2)], range(2)), ranks=2)
    last = {"0": {"last_enqueued_collective": "9" * 5000}}
    (folder / "rank2.json").write_text(
        json.dumps(dump([call(0)], range(3), pg_status=last)).replace("2.10", "9" * 5000)
    )


@hostile
def integers_of_a_million_digits(folder: Path) -> None:
    (folder / "rank0.json").write_text('{"version":1,"pg_config":{},"entries":[' + "9" * 1_000_000 + "]}")


@hostile
def names_that_act_on_terminals(folder: Path) -> None:
    evil = "\x1b[31m\x1b]0;title\x07\u202e\u2066../../../etc\r\n\x00<script>\udc80"
    named = {"profiling_name": f"nccl:{evil}", "process_group": (evil, evil), "frames": [
        {"name": evil, "filename": f"/{evil}/a.py", "line": 1}
    ]}  # fmt: skip
    config = {evil: {"name": evil, "desc": evil, "ranks": "[0, 1]"}}
    write(folder, dump([call(0, **named), started(1, **named)], pg_config=config), ranks=2)
    (folder / "\x1b[31m\u202e_rank_3").write_bytes(b"GIF89a")
    (folder / "new\nline_rank_4").write_bytes(b"")


@hostile
def groups_described_by_numbers(folder: Path) -> None:
    write(folder, dump([call(0)], pg_config={"0": {"desc": 7, "ranks": "[0]"}}))


@hostile
def what_is_no_regular_file(folder: Path) -> None:
    write(folder, dump([call(0)], range(2)))
    os.mkfifo(folder / "rank_1")
    (folder / "rank_2").symlink_to("/dev/zero")
    (folder / "rank_3").symlink_to("rank_3")
    (folder / "rank_4").mkdir()
    (folder / "rank_5").symlink_to("rank_0")
    (folder / "rank_6").touch()
    os.truncate(folder / "rank_6", 1 << 40)
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(folder, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{here}/rank_7")
        os.close(here)


@hostile
def several_dumps_of_one_rank(folder: Path) -> None:
    for name in ("rank_0", "rank0.json", "rank_00", "rank_000.pkl", "x0", "rank_9999999", "rank_٣"):
        (folder / name).write_bytes(pickle.dumps(dump([call(0)], range(1)), protocol=2))


@hostile
def two_files_beyond_what_is_read_together(folder: Path) -> None:
    for rank in range(2):
        (folder / f"rank_{rank}").touch()
        os.truncate(folder / f"rank_{rank}", 40 << 20)


@hostile
def compressed_dumps(folder: Path) -> None:
    import gzip

    (folder / "rank_0").write_bytes(gzip.compress(b"\0" * 100_000_000))


@sized(6)
def every_rank_calls_something_else(folder: Path, size: int = 1_000) -> None:
    for rank in range(size):
        calls = [started(i, profiling_name=f"nccl:op{rank}_{i}", input_sizes=[[rank + 1]]) for i in range(60)]
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(dump(calls, range(size)), protocol=2))


@sized(6)
def numbers_of_calls_that_never_meet(folder: Path, size: int = 1_000) -> None:
    for rank in range(size):
        calls = [call(i, collective_seq_id=rank * 1000 + i) for i in range(200)]
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(dump(calls, range(size)), protocol=2))


@sized(6)
def dumps_that_begin_one_after_another(folder: Path, size: int = 1_000) -> None:
    for rank in range(size):
        calls = [call(i) for i in range(rank, rank + 200)]
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(dump(calls, range(size)), protocol=2))


@sized(1_000)
def a_hundred_thousand_coalesced_calls(folder: Path, size: int = 100_000) -> None:
    about = {"collective_seq_id": 1, "profiling_name": "nccl:_all_gather_base"}
    calls = [started(i, **about) for i in range(size)]
    write(folder, dump([*calls, call(size, collective_seq_id=1, profiling_name="nccl:coalesced")], range(2)), 2)


@sized(500)
def a_hundred_thousand_messages(folder: Path, size: int = 30_000) -> None:
    for rank in range(2):
        op = f"send {rank}->{1 - rank}" if rank else f"recv {rank}<-{1 - rank}"
        about = {"is_p2p": True, "collective_seq_id": 0, "profiling_name": f"nccl:{op}"}
        calls = [started(i, p2p_seq_id=i + 1, **about) for i in range(size)]
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(dump(calls, range(2)), protocol=2))


@sized(20)
def a_ring_of_messages(folder: Path, size: int = 1_000) -> None:
    for rank in range(size):
        ends = (f"send {rank}->{(rank + 1) % size}", f"recv {rank}<-{(rank - 1) % size}") * 30
        about = {"is_p2p": True, "collective_seq_id": 0}
        calls = [started(i, p2p_seq_id=i, profiling_name=f"nccl:{op}", **about) for i, op in enumerate(ends)]
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(dump(calls, range(size)), protocol=2))
