"""`lab new`: a scenario and its script to start from."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from lab.errors import UsageError

_SCENARIO = """\
name: {name}
learn: Every rank adds its number to a sum that all of them then hold.
predict: What does each of 3 ranks hold after the call?
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="its name: lower-case letters, digits, - and _")
    parser.add_argument("--folder", type=Path, help="where to (default: scenarios if there is one, else here)")


def run(arguments: argparse.Namespace) -> int:
    """Write both files; nothing that is there is overwritten."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,62}", arguments.name):
        raise UsageError(f"{arguments.name!r} cannot name a scenario", "use lower-case letters, digits, - and _")
    folder = arguments.folder or (Path("scenarios") if Path("scenarios").is_dir() else Path())
    file = arguments.name.replace("-", "_")
    scenario, script = folder / f"{file}.yaml", folder / f"{file}.py"
    for path in (scenario, script):
        if path.exists():
            raise UsageError(f"{path} is there already", "choose another name or --folder")
    folder.mkdir(parents=True, exist_ok=True)
    scenario.write_text(_SCENARIO.format(name=arguments.name, file=file), encoding="utf-8")
    script.write_text(_SCRIPT, encoding="utf-8")
    print(f"wrote {scenario} and {script}; try `lab run {scenario}`")
    return 0
