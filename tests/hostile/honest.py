"""Honest submissions to `assignment/sum.yaml`: right ones, done in many ways, and mistakes that people make.

Each is a script, with the points that it earns of ten.
"""

from __future__ import annotations

_SCRIPT = """\
import json
import os
import sys
import time

import torch
import torch.distributed as dist

from lab import note

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
with open("numbers.json") as file:
    mine = torch.tensor(sum(json.load(file)[rank::size]))
{before}note("mine", mine.clone())
{sum}{after}note("total", total)
if rank == 0:
    print("the sum is", int(total), flush=True)
    with open("answer.json", "w") as file:
        json.dump({{"sum": int(total)}}, file)
dist.barrier()
{end}"""
_ALL_REDUCE = "total = mine.clone()\ndist.all_reduce(total)\n"
_WAYS = {
    "all_reduce": _ALL_REDUCE,
    "reduce": "total = mine.clone()\ndist.reduce(total, 0)\ndist.broadcast(total, 0)\n",
    "all_gather": "parts = [torch.zeros_like(mine) for _ in range(size)]\ndist.all_gather(parts, mine)\n"
    "total = sum(parts)\n",
    "gather": "parts = [torch.zeros_like(mine) for _ in range(size)] if rank == 0 else None\n"
    "dist.gather(mine, parts, 0)\ntotal = sum(parts) if rank == 0 else torch.zeros_like(mine)\n"
    "dist.broadcast(total, 0)\n",
    "objects": "parts = [None] * size\ndist.all_gather_object(parts, int(mine))\ntotal = torch.tensor(sum(parts))\n",
    "ring": "total, passed = mine.clone(), mine.clone()\nfor _ in range(size - 1):\n    got = torch.zeros_like(mine)\n"
    "    work = dist.isend(passed, (rank + 1) % size)\n    dist.recv(got, (rank - 1) % size)\n"
    "    work.wait()\n"
    "    passed = got\n    total += got\n",
    "star": "total = mine.clone()\nif rank == 0:\n    for other in range(1, size):\n"
    "        got = torch.zeros_like(mine)\n"
    "        dist.recv(got, other)\n        total += got\nelse:\n    dist.send(mine, 0)\ndist.broadcast(total, 0)\n",
    "async": "total = mine.clone()\ndist.all_reduce(total, async_op=True).wait()\n",
    "scatter": "parts = [torch.zeros_like(mine) for _ in range(size)]\ndist.all_gather(parts, mine)\n"
    "total = torch.zeros_like(mine)\ndist.scatter(total, [sum(parts)] * size if rank == 0 else None, 0)\n",
    "groups": "pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]\nother = [dist.new_group([0, 2]), "
    "dist.new_group([1, 3])]\ntotal = mine.clone()\ndist.all_reduce(total, group=pairs[rank // 2])\n"
    "dist.all_reduce(total, group=other[rank % 2])\n",
}
_RIGHT_TOO = {
    "is_slow": "time.sleep(0.4)\n",
    "prints_much": "print('x' * 99 + '\\n' * 1, end='')\nfor _ in range(10_000):\n    print('y' * 99)\n",
    "uses_memory": "held = torch.ones(50_000_000)\n",
    "starts_a_process": "import subprocess\n\nsubprocess.run([sys.executable, '-c', 'print(1)'], check=True)\n",
    "starts_threads": "from concurrent.futures import ThreadPoolExecutor\n\nwith ThreadPoolExecutor(8) as pool:\n"
    "    list(pool.map(str, range(100)))\n",
    "writes_files": "import tempfile\n\nopen(f'own{rank}', 'w').write('x' * 100_000)\n"
    "tempfile.NamedTemporaryFile(delete=False).write(b'x')\nopen(f'/shared/of{rank}', 'w').write('x')\n"
    "torch.save(mine, f'/dev/shm/saved{rank}')\n",
    "leaves_much_beside_its_answer": "if rank == 0:\n    os.mkfifo('pipe')\n    os.mkdir('many')\n"
    "    open('large', 'w').write('x' * (40 << 20))\n    os.symlink('/dev/zero', 'link')\n"
    "    [open(f'many/{number}', 'w').close() for number in range(3000)]\n"
    "    open('sparse', 'w').truncate(1 << 40)\n",
    "finds_nothing_of_others": "left = [name for top in ('/shared', '/tmp', '/dev/shm') for name in os.listdir(top)]\n"
    "assert not [name for name in left if 'torch' not in name], left\ndist.barrier()\n",
}
_MISTAKES = {
    "no_sum": ({"sum": "total = mine\n"}, 2),
    "one_too_many": ({"after": "total = total + 1\n"}, 2),
    "as_text": ({"after": "total = str(int(total))\n"}, 3),
    "mine_is_changed": ({"before": "mine += 1\n", "after": "total = total - size\n"}, 9),
    "answer_is_wrong": ({"end": "json.dump({'sum': 0}, open('answer.json', 'w'))\n"}, 6),
    "answer_is_missing": ({"end": "if rank == 0:\n    os.remove('answer.json')\n"}, 6),
    "answer_is_a_link_to_that_of_the_check": (
        {
            "end": "if rank == 0:\n    os.remove('answer.json')\n"
            "    os.symlink('/proc/self/cwd/expected.json', 'answer.json')\n"
        },
        6,
    ),
    "answer_is_a_pipe": ({"end": "if rank == 0:\n    os.remove('answer.json')\n    os.mkfifo('answer.json')\n"}, 6),
    "answer_is_a_terabyte": ({"end": "if rank == 0:\n    os.truncate('answer.json', 1 << 40)\n"}, 6),
    "answer_is_nested": ({"end": "if rank == 0:\n    open('answer.json', 'w').write('[' * 900_000)\n"}, 6),
    "answer_is_a_long_number": (
        {"end": "if rank == 0:\n    open('answer.json', 'w').write('{\"sum\": ' + '1' * 900_000 + '}')\n"},
        6,
    ),
    "answer_is_a_list": ({"end": "if rank == 0:\n    open('answer.json', 'w').write('[12941]')\n"}, 6),
    "raises_at_its_end": ({"end": "if rank == 1:\n    raise ValueError('too late')\n"}, 5),
    "exits_with_3": ({"end": "sys.exit(3)\n"}, 5),
    "hangs_at_its_end": ({"end": "if rank == 1:\n    time.sleep(600)\n"}, 5),
    "a_rank_never_sums": ({"sum": f"if rank == 2:\n    time.sleep(600)\n{_ALL_REDUCE}"}, 1),
    "a_rank_leaves": ({"sum": f"dist.barrier()\nif rank == 1:\n    sys.exit(0)\n{_ALL_REDUCE}"}, 1),
    "only_rank_0_notes": ({"before": "if rank:\n    note = lambda *_: None\n"}, 2),
    "does_not_start": ({"before": "import torhc\n\n"}, 0),
}


def honest() -> dict[str, tuple[str, float]]:
    """Scripts by name, each with its points."""
    found = {f"right_by_{name}": (_script(sum=way), 10.0) for name, way in _WAYS.items()}
    found |= {f"right_and_{name}": (_script(before=text), 10.0) for name, text in _RIGHT_TOO.items()}
    return found | {name: (_script(**parts), float(points)) for name, (parts, points) in _MISTAKES.items()}


def _script(**parts: str) -> str:
    return _SCRIPT.format(**{"before": "", "sum": _ALL_REDUCE, "after": "", "end": "", **parts})
