"""Images of a Docker engine; a feature builds or pulls missing ones."""

from __future__ import annotations

from urllib.parse import quote

from lab import __version__
from lab.engine.docker.connection import Connection, Refused
from lab.engine.protocol import Announce
from lab.errors import ImageUnfit
from lab.feature import find_hook
from lab.frozen import Frozen
from lab.words import clip_end

_ABSENT = 404
DEFAULT_IMAGE = f"lab-node:{__version__}"
"""The image that the lab builds, and uses by default."""
TORCH_LABEL = "lab.image.torch"


class ImageInfo(Frozen):
    """An image that the engine has."""

    name: str
    """As requested."""
    id: str
    """`sha256:...`"""
    size_bytes: int
    torch: str | None
    """Version of torch with which the lab built it; None for other images."""


def inspect_image(connection: Connection, image: str) -> ImageInfo | None:
    """Return the engine's information about an image, or None if it does not have it."""
    try:
        facts = connection.ask("GET", f"/images/{quote(image, safe='/:@')}/json")
    except Refused as refused:
        if refused.status == _ABSENT:
            return None
        hint = "name an image as in `pytorch/pytorch:latest`"
        raise ImageUnfit(f"cannot look up the image {image}: {one_line(refused.explanation)}", hint) from refused
    labels = (facts.get("Config") or {}).get("Labels") or {}
    return ImageInfo(name=image, id=facts["Id"], size_bytes=facts["Size"], torch=labels.get(TORCH_LABEL))


def ensure_image(connection: Connection, image: str, announce: Announce) -> ImageInfo:
    """Return an image: build the default one if it is missing, pull any other.

    Raises:
        LabError: it cannot be built or pulled.
    """
    if (there := inspect_image(connection, image)) is not None:
        return there
    if (make_image := find_hook("make_image")) is None:
        raise ImageUnfit(f"the engine has no image {image}", f"`docker pull {image}`, or build it")
    made: ImageInfo = make_image(connection, image, announce)
    return made


def one_line(reason: str, limit: int = 300) -> str:
    """Return the reason on one line, cut off after `limit` characters."""
    return clip_end(" ".join(reason.split()), limit)
