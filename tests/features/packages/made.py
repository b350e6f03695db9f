"""Pythons that tests of packages ask."""

from __future__ import annotations

from collections.abc import Mapping

from lab.features.packages.wheels import Package, Target


def python_with(packages: Mapping[str, str], what: str) -> Target:
    """A Python that has these packages: versions by name."""
    return Target(
        what=what,
        executable="python3",
        python="3.11",
        abi="cp311",
        platforms=["manylinux_2_36_x86_64"],
        markers={"python_version": "3.11", "platform_machine": "x86_64"},
        folders=["/site-packages"],
        modules=frozenset(packages),
        programs=frozenset({"python3"}),
        system_programs=frozenset({"sh"}),
        has={name: Package(version) for name, version in packages.items()},
    )
