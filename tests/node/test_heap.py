"""Memory that is gathered in large pages holds what it held, and what nobody filled is left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KNOWS_HOW = tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 1) and (
    Path("/sys/kernel/mm/transparent_hugepage/enabled").exists()
    and "[never]" not in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
)
GATHERS = """
import hashlib, json, mmap, os, re
from lab.node.warm import Heap

def kib(what):
    return int(re.search(rf"^{what}: *(\\d+) kB", open("/proc/self/smaps_rollup").read(), re.M)[1])

full, empty = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE), mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE)
full.write(os.urandom(16 << 20))
before, large, held = hashlib.sha1(full).hexdigest(), kib("AnonHugePages"), kib("Anonymous")
heap = Heap()
for turn in range(200):
    heap.gather()
print(json.dumps([hashlib.sha1(full).hexdigest() == before, kib("AnonHugePages") - large, kib("Anonymous") - held]))
"""


def test_what_is_full_is_gathered_and_nothing_else():
    if not KNOWS_HOW:
        pytest.skip("needs kernel 6.1 with transparent huge pages")
    ran = subprocess.run(
        [sys.executable, "-c", GATHERS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    same, gathered_kib, grown_kib = (value for value in json.loads(ran.stdout))
    assert same
    assert gathered_kib >= 8 << 10
    assert grown_kib < 8 << 10
