"""Checks of a whole run, called with the results of all ranks."""

import ctypes
import os
import sys


def everybody_has_the_total(results):
    world_size = len(results)
    assert [result["rank"] for result in results] == list(range(world_size))
    assert all(result["notes"]["total"] == [world_size * (world_size + 1) // 2] for result in results)
    assert all(result["exit_code"] == 0 and result["log"] == "" for result in results)


def raises(results):
    raise ValueError("this is never right")


def asserts(results):
    assert len(results) == 4, f"{len(results)} ranks, not 4"


def returns_false(results):
    return False


def exits(results):
    sys.exit(3)


def dies(results):
    ctypes.string_at(0)


def prints(results):
    print(f"looked at {len(results)} ranks")


def has_no_privileges(results):
    with open("/proc/self/status") as status:
        capabilities = [line.split()[1] for line in status if line.startswith("CapEff")]
    assert int(capabilities[0], 16) == 0
    assert os.path.samefile(os.getcwd(), os.path.dirname(__file__))
