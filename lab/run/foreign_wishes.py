"""What a scenario file, which somebody else may have written, does only if whoever calls allows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.engine.protocol import Engine
from lab.errors import UsageError
from lab.spec.reading import shown
from lab.spec.scenario import Scenario
from lab.words import listing

if TYPE_CHECKING:
    from lab.run.options import RunOptions


def refuse_foreign_wishes(scenario: Scenario, engine: Engine, asked: Mapping[str, Any], options: RunOptions) -> None:
    """Refuse a scenario file that mounts folders from outside of its own, or names an image that has to be pulled.

    Args:
        scenario: what is to run on a cluster that is made for it.
        engine: where.
        asked: fields of the shape of the cluster that whoever calls asked for.
        options: say what is allowed.

    Raises:
        UsageError: it does, and that is not allowed.
    """
    if not options.allow_volumes:
        refuse_foreign_folders(scenario, asked.get("data", {}))
    if not options.pull and not asked.get("image"):
        refuse_absent_image(scenario, engine)


def refuse_absent_image(scenario: Scenario, engine: Engine) -> None:
    """Refuse a scenario file whose image the engine does not have.

    Raises:
        UsageError: it does not.
    """
    if scenario.source is None or scenario.image is None:
        return
    from lab.engine.capability import ImageStore

    if isinstance(engine, ImageStore) and not engine.has_image(scenario.image):
        raise UsageError(
            f"{scenario.name} asks for the image {shown(scenario.image)}, which the {engine.name} engine does not have",
            f"`docker pull {scenario.image}` or --pull fetches it; --image names another one",
        )


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
