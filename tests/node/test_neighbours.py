"""What a kernel is told of neighbours, in a network namespace of its own."""

from __future__ import annotations

import subprocess
import sys

from tests.features.faults.test_links_in_namespaces import pytestmark as in_namespaces

pytestmark = in_namespaces

_PROGRAM = """
import subprocess
from lab.node import netlink

def ip(*words):
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout

ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
ip("address", "add", "10.77.0.2/24", "dev", "v0")
ip("link", "set", "v0", "up")
said = {"address": "10.77.0.2", "hardware": {"10.77.0.3": "02:42:0a:4d:00:03", "10.77.0.4": "02:42:0a:4d:00:04"}}
for _ in range(2):
    netlink.learn_neighbours(**said)
moved = {"address": "10.77.0.2", "hardware": {"10.77.0.3": "02:42:0a:4d:00:05"}}
netlink.learn_neighbours(**moved)
print(ip("neighbour", "show", "dev", "v0"))
"""


def test_a_kernel_is_told_of_neighbours_and_checks_them_as_any_other():
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    lines = sorted(line.split() for line in done.stdout.splitlines() if line)
    assert [(line[0], line[2]) for line in lines] == [
        ("10.77.0.3", "02:42:0a:4d:00:05"),
        ("10.77.0.4", "02:42:0a:4d:00:04"),
    ]
    assert all({"extern_learn", "STALE"} <= set(line) and "PERMANENT" not in line for line in lines)
