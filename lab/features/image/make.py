"""Build and pull images of nodes. Takes a docker client; importing this module imports no docker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from lab import __version__
from lab.engine.docker.image import (
    DEFAULT_IMAGE,
    RECIPE_LABEL,
    ImageInfo,
    engine_must_answer,
    inspect_image,
    one_line,
)
from lab.errors import ImageError
from lab.features.image.engine_log import BuildLog, ImageProgress, PullLog, build_failed, is_transient, pull_failed
from lab.words import format_duration

if TYPE_CHECKING:
    import docker

    from lab.features.image.context import BuildContext
    from lab.features.image.engine_log import Event

SILENT_S = 600.0
"""Seconds without any word from the engine after which a build or a pull is given up."""
PULL_ATTEMPTS = 3

OnProgress = Callable[[ImageProgress], None]


def make_image(client: docker.DockerClient, image: str, on_progress: OnProgress = lambda _: None) -> ImageInfo:
    """Builds an image (the default one) or pulls it (any other)."""
    if image == DEFAULT_IMAGE:
        return build_image(client, on_progress=on_progress)
    return pull_image(client, image, on_progress)


def ensure_image(
    client: docker.DockerClient, image: str = DEFAULT_IMAGE, on_progress: OnProgress = lambda _: None
) -> ImageInfo:
    """Returns the image; makes it where the engine lacks it."""
    return inspect_image(client, image) or make_image(client, image, on_progress)


def build_image(
    client: docker.DockerClient,
    context: BuildContext | None = None,
    *,
    tag: str = DEFAULT_IMAGE,
    no_cache: bool = False,
    on_progress: OnProgress = lambda _: None,
) -> ImageInfo:
    """Builds the project's Dockerfile."""
    from lab.features.image.context import plan_build

    plan = context or plan_build()
    return build_from(
        client,
        tag,
        lambda put: plan.tar(on_sent=lambda sent: put({"upload": sent})),
        BuildLog(plan.upload_bytes),
        on_progress,
        nocache=no_cache,
        buildargs=dict(plan.build_args),
        labels={RECIPE_LABEL: plan.recipe, "org.opencontainers.image.version": __version__},
    )


def build_from(
    client: docker.DockerClient,
    tag: str,
    files: Callable[[Callable[[Event], None]], Iterable[bytes]],
    log: BuildLog,
    on_progress: OnProgress,
    **request: Any,
) -> ImageInfo:
    """Builds an image from a tar, which `files` yields by pieces; it may add events of its own to those of the engine.

    `request` goes to the engine. After a failure, and after Ctrl-C, no container of the build is left.
    """
    before = inspect_image(client, tag)

    def start(put: Callable[[Event], None]) -> Iterable[Event]:
        events: Iterable[Event] = client.api.build(
            fileobj=files(put),  # type: ignore[arg-type]  # any iterable
            custom_context=True,
            decode=True,
            rm=True,
            forcerm=True,
            tag=tag,
            **request,
        )
        return events

    for event in _events(start, f"building the image {tag}"):
        for progress in log.read(event):
            on_progress(progress)
    if log.error:
        step = f"step {log.step}/{log.total}" if log.total else ""
        raise build_failed(tag, log.error, step=step, tail=list(log.tail))
    built = inspect_image(client, tag)
    if built is None:
        raise build_failed(tag, "the engine reported no error, but has no such image", tail=list(log.tail))
    replaced = [before.id] if before and before.id != built.id else []
    _drop_nameless(client, [*log.stages, *replaced])
    return built


def pull_image(client: docker.DockerClient, image: str, on_progress: OnProgress = lambda _: None) -> ImageInfo:
    """Pulls an image; tries again where the connection to the registry failed."""
    import tenacity

    def tell(state: tenacity.RetryCallState) -> None:
        on_progress(ImageProgress(0, 0, f"pulling {image}: connection failed, try {state.attempt_number + 1}"))

    attempts = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(PULL_ATTEMPTS),
        wait=tenacity.wait_exponential(multiplier=1, max=8),
        retry=tenacity.retry_if_exception_type(_ConnectionFailed),
        before_sleep=tell,
        reraise=True,
    )
    try:
        attempts(_pull_once, client, image, on_progress)
    except _ConnectionFailed as error:
        raise pull_failed(image, str(error)) from error
    pulled = inspect_image(client, image)
    if pulled is None:
        raise pull_failed(image, "the engine reported no error, but has no such image")
    return pulled


class _ConnectionFailed(Exception):
    """A pull failed in a way that may pass."""


def _pull_once(client: docker.DockerClient, image: str, on_progress: OnProgress) -> None:
    from docker.errors import APIError

    log = PullLog()
    try:
        for event in _events(lambda _: client.api.pull(image, stream=True, decode=True), f"pulling the image {image}"):
            if progress := log.read(event):
                on_progress(ImageProgress(progress.step, progress.total, f"pulling {image}: {progress.text}"))
        reason = log.error
    except APIError as error:
        reason = str(error.explanation or error)
    if is_transient(reason):
        raise _ConnectionFailed(reason)
    if reason:
        raise pull_failed(image, reason)


def _events(start: Callable[[Callable[[Event], None]], Iterable[Event]], doing: str) -> Iterator[Event]:
    """Yields the events of a request, with the deadline on silence and the lab's own errors."""
    from docker.errors import APIError

    from lab.features.image.engine_log import Silent, follow

    with engine_must_answer(doing):
        try:
            yield from follow(start, SILENT_S)
        except Silent:
            raise ImageError(
                f"no word from the engine for {format_duration(SILENT_S)} while {doing}", "see the engine's own log"
            ) from None
        except APIError as error:
            if "/build" in str(getattr(error.response, "url", "")):
                raise ImageError(f"the engine refused {doing}: {one_line(str(error.explanation))}") from error
            raise


def _drop_nameless(client: docker.DockerClient, images: Iterable[str]) -> None:
    """Removes images that have lost their name: first stages and the image replaced, a gigabyte each."""
    from docker.errors import APIError

    for image in images:
        try:
            if not client.api.inspect_image(image)["RepoTags"]:  # type: ignore[no-untyped-call]
                client.api.remove_image(image)
        except APIError:
            continue  # a container or another build uses it, or it is already gone: neither is our concern
