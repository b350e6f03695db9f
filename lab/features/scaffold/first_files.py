"""The files that `lab new` and `lab init` write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lab.spec.load import SCHEMA_FILE, schema_file

_FOR_EDITORS = b"# yaml-language-server: $schema="
_SCENARIO = """\
name: {name}
learn: Every rank adds its number to a sum that all of them then hold.
predict:
  ask: What does each rank hold after the call?
  answer: {{note: total}}
nodes: 3
script: {file}.py
timeout: 60s
expect:
  notes:
    total: sum(range(world_size))
"""
_SCRIPT = '''\
"""Say here, in a sentence or two, what this shows."""

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    total = torch.tensor([rank])
    dist.all_reduce(total)  # SUM is the default
    print(f"rank {rank} of {dist.get_world_size()}: the sum of all ranks is {total.item()}")
    note("total", total.item())

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
'''


TEST = '''\
"""Tests that run on every rank of real nodes. `lab help pytest` says more."""

import lab


@lab.distributed(nodes=3)
def test_every_rank_gets_the_sum_of_all(rank, world_size):
    import torch  # here, so that only the nodes need it
    import torch.distributed as dist

    total = torch.tensor([rank])
    dist.all_reduce(total)
    assert total.item() == sum(range(world_size))
'''
"""The first test of somebody's repository."""


def new_scenario(name: str) -> dict[str, bytes]:
    """A scenario and its script: names of files -> contents."""
    file = name.replace("-", "_")
    return {f"{file}.yaml": _SCENARIO.format(name=name, file=file).encode(), f"{file}.py": _SCRIPT.encode()}


def with_schema(files: Mapping[str, bytes], folder: Path) -> dict[str, bytes]:
    """The files of a scenario, itself first, which tells editors in its first line where its schema lies.

    That is added, unless it is there already, in the folder or in the one above.
    """
    found = next((up + SCHEMA_FILE for up in ("", "../") if (folder / up / SCHEMA_FILE).is_file()), None)
    name, scenario = next(iter(files.items()))
    lines = [line for line in scenario.splitlines(keepends=True) if not line.startswith(_FOR_EDITORS)]
    first = _FOR_EDITORS + (found or SCHEMA_FILE).encode() + b"\n"
    schema = {} if found else {SCHEMA_FILE: schema_file().read_bytes()}
    return {**files, name: first + b"".join(lines), **schema}
