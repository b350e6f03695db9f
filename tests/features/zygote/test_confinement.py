"""What a process may do, read from the kernel's words."""

from __future__ import annotations

from pathlib import Path

from lab.features.zygote.on_node.entering import read_privileges
from tests.golden import golden


def test_what_a_process_may_do_is_what_the_kernel_says_of_it():
    said = read_privileges(Path("/proc/self/status").read_text())
    assert {"Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp"} <= said.keys()
    assert not {"Pid", "PPid", "VmRSS"} & said.keys()
    assert read_privileges(golden(1)) == {"CapEff": "00ff", "Groups": ""}
