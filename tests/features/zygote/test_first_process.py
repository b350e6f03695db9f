"""Which control groups a process has to join to be where another one is, for both versions of them."""

from __future__ import annotations

import os

import pytest

from lab.features.zygote.on_node.entering import FirstProcess, Unlike, groups_to_join
from tests.golden import golden

V1 = """\
30 23 0:26 / /machine/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /machine/cgroup/systemd rw,nosuid - cgroup cgroup rw,xattr,name=systemd
32 30 0:28 / /machine/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /machine/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
34 30 0:30 / /machine/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw
35 23 0:29 /docker/zygote /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory
"""
V2 = "40 23 0:26 / /machine/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def test_every_hierarchy_in_which_the_two_are_apart_is_joined_where_it_is_mounted_for_that():
    theirs = "4:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n2:name=systemd:/docker/a\n1:freezer:/\n0::/same\n"
    own = "4:memory:/docker/z\n3:cpu,cpuacct:/docker/z\n2:name=systemd:/docker/z\n1:freezer:/\n0::/same\n"
    assert list(groups_to_join(V1, theirs, own)) == [
        "/machine/cgroup/memory/docker/a",
        "/machine/cgroup/cpu,cpuacct/docker/a",
        "/machine/cgroup/systemd/docker/a",
    ]


def test_there_may_be_one_hierarchy_for_everything():
    theirs, own = "0::/system.slice/docker-a.scope\n", "0::/system.slice/docker-z.scope\n"
    assert list(groups_to_join(V2, theirs, own)) == ["/machine/cgroup/system.slice/docker-a.scope"]
    assert list(groups_to_join(V1, theirs, own)) == ["/machine/cgroup/unified/system.slice/docker-a.scope"]


def test_a_mount_may_begin_below_the_top_of_its_hierarchy():
    mounts = "33 30 0:29 /outer /machine/cgroup/memory rw - cgroup cgroup rw,memory\n"
    assert list(groups_to_join(mounts, "4:memory:/outer/docker/a\n", "4:memory:/outer/docker/z\n")) == [
        "/machine/cgroup/memory/docker/a"
    ]
    with pytest.raises(Unlike, match=golden(1)):
        list(groups_to_join(mounts, "4:memory:/outermost/a\n", "4:memory:/\n"))


def test_what_is_not_mounted_cannot_be_joined():
    with pytest.raises(Unlike, match=golden(1)):
        list(groups_to_join(V1, "9:pids:/docker/a\n", "9:pids:/docker/z\n"))
    with pytest.raises(Unlike, match=golden(2)):
        list(groups_to_join("", "0::/a\n", "0::/z\n"))


def test_a_process_that_is_not_the_first_one_of_that_container_is_not_entered():
    with pytest.raises(Unlike, match=golden(1, os.getpid())):
        FirstProcess(os.getpid(), "no such container")
