"""Which control groups a process has to join to be where another one is, for both versions of them."""

from __future__ import annotations

import os

import pytest

from lab.features.zygote.on_node.entering import FirstProcess, Unlike, groups_to_join
from tests.golden import golden


def test_every_hierarchy_in_which_the_two_are_apart_is_joined():
    theirs = "4:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n2:name=systemd:/docker/a\n1:freezer:/\n0::/same\n"
    own = "4:memory:/docker/z\n3:cpu,cpuacct:/docker/z\n2:name=systemd:/docker/z\n1:freezer:/\n0::/same\n"
    assert list(groups_to_join(theirs, own, hybrid=True)) == [
        "/machine/cgroup/memory/docker/a",
        "/machine/cgroup/cpu,cpuacct/docker/a",
        "/machine/cgroup/systemd/docker/a",
    ]


def test_there_may_be_one_hierarchy_for_everything():
    theirs, own = "0::/system.slice/docker-a.scope\n", "0::/system.slice/docker-z.scope\n"
    assert list(groups_to_join(theirs, own, hybrid=False)) == ["/machine/cgroup/system.slice/docker-a.scope"]
    assert list(groups_to_join(theirs, own, hybrid=True)) == ["/machine/cgroup/unified/system.slice/docker-a.scope"]


def test_a_process_that_is_not_the_first_one_of_that_container_is_not_entered():
    with pytest.raises(Unlike, match=golden(1, os.getpid())):
        FirstProcess(os.getpid(), "no such container")
