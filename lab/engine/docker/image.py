"""Images that a Docker engine has; a feature makes and fetches those that it lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lab import __version__
from lab.errors import EngineUnavailable, ImageError, ImageUnfit
from lab.feature import hook
from lab.words import clip

if TYPE_CHECKING:
    import docker

DEFAULT_IMAGE = f"lab-node:{__version__}"
"""The image that the lab builds for itself where no other is named."""
TORCH_LABEL = "lab.image.torch"


@dataclass(frozen=True, kw_only=True)
class ImageInfo:
    """An image that the engine has."""

    name: str
    """As it was asked for."""
    id: str
    """`sha256:...`"""
    size_bytes: int
    torch: str | None
    """Version of torch that the lab built it with; None for an image from elsewhere."""


def inspect_image(client: docker.DockerClient, image: str) -> ImageInfo | None:
    """Returns what the engine knows of the image, or None if it does not have it."""
    from docker.errors import APIError, ImageNotFound

    with engine_must_answer(f"looking for the image {image}"):
        try:
            facts: dict[str, Any] = client.api.inspect_image(image)  # type: ignore[no-untyped-call]
        except ImageNotFound:
            return None
        except APIError as error:
            raise ImageUnfit(
                f"the image {image} cannot be looked up: {one_line(str(error.explanation))}",
                "name an image as in `pytorch/pytorch:latest`",
            ) from error
    labels = (facts.get("Config") or {}).get("Labels") or {}
    return ImageInfo(
        name=image,
        id=facts["Id"],
        size_bytes=facts["Size"],
        torch=labels.get(TORCH_LABEL),
    )


def ensure_image(client: docker.DockerClient, image: str, announce: Callable[[str], None]) -> ImageInfo:
    """Returns an image: the default one is built where it is missing, any other is pulled.

    Raises:
        LabError: it cannot be made or fetched.
    """
    if (there := inspect_image(client, image)) is not None:
        return there
    make_image = hook("make_image")
    if make_image is None:
        raise ImageUnfit(f"the engine has no image {image}", f"`docker pull {image}`, or build it")
    made: ImageInfo = make_image(client, image, announce)
    return made


@contextmanager
def engine_must_answer(action: str) -> Iterator[None]:
    """Turns a lost connection into `EngineUnavailable`; an answer of the engine, even an error, passes."""
    import requests
    import urllib3
    from docker.errors import APIError, DockerException

    try:
        yield
    except APIError:
        raise
    except DockerException as error:  # docker-py's own checks, before anything is sent
        raise ImageError(f"{action} failed: {one_line(str(error))}") from error
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise EngineUnavailable(f"the engine stopped answering while {action}: {one_line(str(error))}") from error


def one_line(reason: str, limit: int = 300) -> str:
    """Returns the reason on one line, cut off after `limit` characters."""
    return clip(" ".join(reason.split()), limit)
