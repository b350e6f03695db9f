"""Folders of this machine that a scenario file would mount although they are not beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lab.errors import UsageError
from lab.spec.scenario import Scenario
from lab.words import listing


def refuse_foreign_folders(scenario: Scenario, named: Mapping[str, Path]) -> None:
    """Refuse a scenario file that mounts folders from outside of its own: somebody else may have written it.

    `named` is data that whoever calls has named.
    """
    if scenario.source is None:  # whoever made it in Python said so
        return
    own = scenario.source.resolve().parent
    mounts = listing(
        f"{source.resolve()} {how}"
        for source, how in (
            *((one.source, f"at {one.target}{'' if one.read_only else ', writable,'}") for one in scenario.volumes),
            *((source, f"as data {name}") for name, source in scenario.data.items() if named.get(name) != source),
        )
        if not source.resolve().is_relative_to(own)
    )
    if mounts:
        raise UsageError(
            f"{scenario.name} would mount {mounts} in every node, and that is not in its folder",
            "--allow-volumes allows it; whoever can write that scenario could then read what is mounted",
        )
