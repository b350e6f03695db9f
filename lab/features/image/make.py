"""Build and pull images of nodes; nothing here imports docker."""

from __future__ import annotations

import os
import queue
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab import __version__
from lab.engine.docker.connection import Connection, Refused
from lab.engine.docker.image import DEFAULT_IMAGE, ImageInfo, inspect_image, one_line
from lab.engine.protocol import Announce
from lab.errors import ImageError, ImageUnfit
from lab.feature import bundled_path
from lab.frozen import Frozen
from lab.node.recorder import build
from lab.words import clip_end, format_bytes, format_duration

BASE_VARIABLE = "LAB_IMAGE_BASE"
BUILD_BASE_VARIABLE = "LAB_IMAGE_BUILD_BASE"
WHEELS_VARIABLE = "LAB_IMAGE_WHEELS"

_RECORDER = "lab/node/recorder"
"""Folder of the recorder in the build context, as in a checkout, where you can build the Dockerfile manually."""
_MPI_FILES = ("pyproject.toml", "README.md", "torch_mpi/*.py", "torch_mpi/py.typed")
"""Files from which the wheel of the package in mpi/ is built."""
_TORCH_WHEEL = re.compile(r"^torch-(\d[^-+]*)(?:\+[^-]*)?-")


class BuildContext(Frozen):
    """All decisions of one build."""

    dockerfile: Path
    sources: Mapping[str, Path]
    """The recorder's C++ with what compiles it, and the package in mpi/, by name in the build context."""
    wheels: tuple[Path, ...]
    """Wheels to install from, sorted by name; empty: use the package index."""
    build_args: Mapping[str, str]
    """Values of the Dockerfile's ARGs; others keep their defaults."""

    def tar(self) -> Iterator[bytes]:
        """Yield the context as a tar archive, in pieces of a megabyte."""
        from lab.features.copy.archive import pack_files

        members = {"wheels": self.dockerfile.parent, "Dockerfile": self.dockerfile, **self.sources}
        members |= {f"wheels/{path.name}": path for path in self.wheels}
        return pack_files(members)


def plan_build(
    *,
    base: str | None = None,
    build_base: str | None = None,
    wheels: Path | None = None,
    torch: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> BuildContext:
    """Decide a build from the arguments, the environment, and the wheels in a folder.

    Args:
        base: Base image; None: `LAB_IMAGE_BASE`, else the Dockerfile's own.
        build_base: The same with g++ and Python's headers; None: `LAB_IMAGE_BUILD_BASE`, else the base image, where the
            build installs them if apt works.
        wheels: Folder with wheels of torch, numpy, and their dependencies; None: `LAB_IMAGE_WHEELS`, else the index.
        torch: Version of torch; None: the one among the wheels, else the Dockerfile's own.
        environ: The environment with these variables.
    """
    if wheels is None and (folder := environ.get(WHEELS_VARIABLE)):
        wheels = Path(folder)
    wheel_files = _find_wheels(wheels) if wheels is not None else ()
    args = {
        "BASE": base or environ.get(BASE_VARIABLE),
        "BUILD_BASE": build_base or environ.get(BUILD_BASE_VARIABLE),
        "TORCH": torch or (_torch_version(wheel_files) if wheel_files else None),
        **{name: environ.get(name) for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")},
    }
    values = {name: value for name, value in args.items() if value}
    return BuildContext(dockerfile=find_dockerfile(), sources=_find_sources(), wheels=wheel_files, build_args=values)


def find_dockerfile() -> Path:
    """Return the path of the Dockerfile of the node image."""
    path = bundled_path("Dockerfile")
    if path.is_file():
        return path
    hint = "this installation of the lab is incomplete: install it again"
    raise ImageError(f"the Dockerfile of the node image is missing: {path} does not exist", hint)


def _find_sources() -> dict[str, Path]:
    recorder = sorted(map(Path, [build.__file__, *build.list_sources()]))
    package = bundled_path("mpi")
    mpi = sorted(path for pattern in _MPI_FILES for path in package.glob(pattern))
    files = {f"{_RECORDER}/{path.name}": path for path in recorder}
    return files | {f"mpi/{path.relative_to(package).as_posix()}": path for path in mpi}


def _find_wheels(folder: Path) -> tuple[Path, ...]:
    hint = "fill it with `pip download -d DIR torch==VERSION numpy` on a machine with an index (docs/air-gapped.md)"
    if not folder.is_dir():
        raise ImageError(f"the folder of wheels {folder} does not exist", hint)
    wheel_files = tuple(sorted(path for path in folder.glob("*.whl") if path.is_file()))
    for package in ("torch", "numpy"):
        if not any(path.name.startswith(f"{package}-") for path in wheel_files):
            raise ImageError(f"the folder of wheels {folder} has no wheel of {package}", hint)
    return wheel_files


def _torch_version(wheels: tuple[Path, ...]) -> str:
    versions = sorted({match[1] for path in wheels if (match := _TORCH_WHEEL.match(path.name))})
    if len(versions) == 1:
        return versions[0]
    listed = ", ".join(versions) or "none"
    raise ImageError(f"{wheels[0].parent} has several versions of torch: {listed}", "name one with --torch")


Event = Mapping[str, Any]
"""One object of the engine's JSON stream."""

TAIL_LINES = 20
"""Number of lines of a failed build's output that the message shows."""

_STEP = re.compile(r"^(?:\[\d+/\d+\] )?step (\d+/\d+) ?: *(.*)", re.IGNORECASE)
_LAYER = re.compile(r"^ ---> ([0-9a-f]{12,64})$")
_BOOKKEEPING = re.compile(r"^ ---> |^Removing intermediate container ")
_DONE = ("Pull complete", "Already exists")
_ONGOING = ("Pulling fs layer", "Waiting", "Downloading", "Verifying Checksum", "Download complete", "Extracting")
_OF_A_LAYER = (*_DONE, *_ONGOING)
"""Messages about a layer that is pulled."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class EngineLog:
    """Follows a build or a pull: its current step, its last lines, and why it failed."""

    def __init__(self) -> None:
        self.step = ""
        """The step of a build, such as `3/9`; empty where there is none."""
        self.error = ""
        """The engine's reason for the failure; empty while there is none."""
        self.stages: list[str] = []
        """Image of each stage of a build that ended and is not the last one."""
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._layer = ""
        self._done: set[str] = set()
        self._bytes: dict[str, tuple[int, int]] = {}

    def read(self, event: Event) -> list[str]:
        """Read one event and return the lines to show, usually one or none."""
        if "error" in event:
            self.error = str(event["error"]).strip()
            return []
        if "stream" in event:
            lines = _ESCAPES.sub("", str(event["stream"])).replace("\r", "\n").splitlines()
            texts = [text for line in lines if (text := self._read_line(line.rstrip()))]
        else:
            pulled = self._read_layer(str(event.get("id", "")), str(event.get("status", "")), event)
            texts = [f"base image, {pulled}" if self.step else pulled] if pulled else []
        return [f"[{self.step}] {text}" if self.step else text for text in texts]

    def _read_line(self, line: str) -> str:
        """Return the text to show of a line, which may begin a step."""
        if layer := _LAYER.match(line):
            self._layer = layer[1]
        if not line or _BOOKKEEPING.match(line):
            return ""
        self.tail.append(line)
        if (step := _STEP.match(line)) is None:
            return line.strip()
        self.step = step[1]
        if step[2].upper().startswith("FROM") and self._layer:
            self.stages.append(self._layer)
        return clip_end(" ".join(step[2].split()), 100)

    def _read_layer(self, layer: str, status: str, event: Event) -> str:
        """Return the numbers of layers and bytes, if an event is about a layer that is pulled."""
        if status not in _OF_A_LAYER:
            return ""
        known, detail = self._bytes.setdefault(layer, (0, 0)), event.get("progressDetail") or {}
        if status in _DONE:
            self._done.add(layer)
        elif status != "Extracting":  # its progress has other bytes
            self._bytes[layer] = (detail.get("current") or known[0], detail.get("total") or known[1])
        text = f"{len(self._done)} of {len(self._bytes)} layers"
        if whole := sum(size for _, size in self._bytes.values()):
            text += f", {format_bytes(sum(got for got, _ in self._bytes.values()))} of {format_bytes(whole)}"
        return text


_AIR_GAPPED = "without a registry: `lab image build --base LOCAL_IMAGE --wheels DIR` (docs/air-gapped.md)"

_HINTS: tuple[tuple[str, str], ...] = (
    (r"no space left on device", "free space where the engine keeps its images; `docker system df` shows its use"),
    (r"toomanyrequests|rate limit", "the registry limits anonymous pulls: `docker login`, or wait"),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError|NewConnectionError|ReadTimeoutError|Temporary failure in name",
        "pip inside the build cannot reach a package index. With wheels from this machine: "
        "pip download -d wheels torch==VERSION numpy, then lab image build --wheels wheels (docs/air-gapped.md)",
    ),
    (
        r"No matching distribution|Could not find a version",
        "no wheel fits the base image's Python: choose another version of torch, wheels for that Python, "
        "or an index that has them",
    ),
    (r"ensurepip|No module named venv", "the base image's Python needs its venv module (Debian: python3-venv)"),
    (r"python3: (?:command )?not found", "the base image needs Python >= 3.9; name another one with --base"),
    (
        r"dial tcp|no such host|tls:|x509|TLS handshake|timeout|Timeout exceeded|connection re|EOF|lookup ",
        f"the engine cannot reach the registry: check its network and proxy; {_AIR_GAPPED}",
    ),
    (
        r"access denied|unauthorized|not found|manifest unknown|does not exist|No such image|invalid reference",
        f"check the name; `docker login` for a private one; {_AIR_GAPPED}",
    ),
)

_TRANSIENT = re.compile(
    r"TLS handshake timeout|i/o timeout|Timeout exceeded|connection re(?:set|fused)|\bEOF\b|server misbehaving"
    r"|temporary failure|50[234] |Bad Gateway|Service Unavailable|Gateway Time",
    re.IGNORECASE,
)
_COMMAND_FAILED = re.compile(r"^The command '.*' returned a non-zero code: (\d+)$", re.DOTALL)


def is_transient(reason: str) -> bool:
    """Return whether to retry a failed pull: the connection failed, but the registry did not refuse."""
    return _TRANSIENT.search(reason) is not None


def pull_failed(image: str, reason: str) -> ImageUnfit:
    """Return the error for a missing image that cannot be pulled."""
    return ImageUnfit(f"the image {image} does not exist here and the pull failed: {one_line(reason)}", _hint(reason))


def build_failed(image: str, reason: str, *, step: str = "", tail: Sequence[str] = ()) -> ImageError:
    """Return the error for a failed build, with the last lines of its output below the sentence."""
    if match := _COMMAND_FAILED.match(reason):
        sentence = f"{step or 'a step'} exited with code {match[1]}"
    else:
        sentence = f"{step}: {one_line(reason)}" if step else one_line(reason)
    text = f"the build of the image {image} failed: {sentence}"
    if tail:
        text += "\n" + "\n".join(f"  | {one_line(line, 160)}" for line in tail)
    return ImageError(text, _hint("\n".join((*tail, reason))) or "the lines above are the end of the build's output")


def _hint(text: str) -> str:
    return next((hint for pattern, hint in _HINTS if re.search(pattern, text, re.IGNORECASE)), "")


SILENT_S = 600.0
"""Seconds without a message of the engine after which a build or a pull is aborted."""
PULL_ATTEMPTS = 3


def make_image(connection: Connection, image: str, announce: Announce) -> ImageInfo:
    """Build the default image, or pull any other."""
    if image == DEFAULT_IMAGE:
        return build_image(connection, plan_build(), announce)
    return pull_image(connection, image, announce)


def build_image(
    connection: Connection,
    context: BuildContext,
    announce: Announce,
    *,
    no_cache: bool = False,
    labels: Mapping[str, str] = {},
) -> ImageInfo:
    """Build the project's Dockerfile."""
    labels = {"org.opencontainers.image.version": __version__, **labels}
    options = {"nocache": no_cache, "buildargs": dict(context.build_args), "labels": labels}
    return build_from(connection, DEFAULT_IMAGE, context.tar(), announce, **options)


def build_from(
    connection: Connection, tag: str, files: Iterable[bytes], announce: Announce, **options: Any
) -> ImageInfo:
    """Build an image from the pieces of a tar.

    `options` are passed to the engine. After a failure, and after Ctrl-C, no container of the build is left.
    """
    before, log = inspect_image(connection, tag), EngineLog()
    options |= {"custom_context": True, "decode": True, "rm": True, "forcerm": True}

    def start() -> Iterable[Event]:
        return connection.api.build(fileobj=files, tag=tag, **options)  # type: ignore[arg-type]  # any iterable

    try:
        for event in _events(connection, start, f"building the image {tag}"):
            for text in log.read(event):
                announce(text)
    except Refused as refused:
        raise ImageError(f"the engine refused to build the image {tag}: {one_line(refused.explanation)}") from refused
    step = f"step {log.step}" if log.step else ""
    if log.error:
        raise build_failed(tag, log.error, step=step, tail=list(log.tail))
    if (built := inspect_image(connection, tag)) is None:
        raise build_failed(tag, "the engine reported no error, but has no such image", tail=list(log.tail))
    _drop_nameless(connection, [*log.stages, *([before.id] if before and before.id != built.id else [])])
    return built


def pull_image(connection: Connection, image: str, announce: Announce) -> ImageInfo:
    """Pull an image; retry if the connection to the registry failed."""
    import tenacity

    attempts = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(PULL_ATTEMPTS),
        wait=tenacity.wait_exponential(multiplier=1, max=8),
        retry=tenacity.retry_if_exception(lambda error: isinstance(error, ImageUnfit) and is_transient(error.message)),
        before_sleep=lambda state: announce(f"pulling {image}: connection failed, try {state.attempt_number + 1}"),
        reraise=True,
    )
    return attempts(_pull_once, connection, image, announce)


def _pull_once(connection: Connection, image: str, announce: Announce) -> ImageInfo:
    log, action = EngineLog(), f"pulling the image {image}"
    try:
        for event in _events(connection, lambda: connection.api.pull(image, stream=True, decode=True), action):
            for text in log.read(event):
                announce(f"pulling {image}: {text}")
    except Refused as refused:
        raise pull_failed(image, refused.explanation) from refused
    pulled = None if log.error else inspect_image(connection, image)
    if pulled is None:
        raise pull_failed(image, log.error or "the engine reported no error, but has no such image")
    return pulled


def _events(connection: Connection, start: Callable[[], Iterable[Event]], action: str) -> Iterator[Event]:
    """Yield the events of a request, with a deadline for silence and the lab's own errors.

    docker-py has no timeout for the silence of a pull, and a build blocks while its context is sent. A thread makes it
    possible to wait with a deadline, and to handle Ctrl-C at once. The thread ends at the next event or with the
    process, and the engine stops its work when the connection closes.
    """
    events: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
    left = threading.Event()

    def pump() -> None:
        try:
            for event in start():
                if left.is_set():
                    return
                events.put(event)
        except BaseException as error:  # noqa: BLE001  (handed over whole to the thread that waits)
            events.put(error)
        else:
            events.put(None)

    def next_event() -> Event | None:
        event = events.get(timeout=SILENT_S)
        if isinstance(event, BaseException):
            raise event
        return event

    threading.Thread(target=pump, name="lab-image", daemon=True).start()
    try:
        while (event := connection.call(next_event)) is not None:
            yield event
    except queue.Empty:
        hint = "read the engine's own log"
        raise ImageError(f"no message from the engine for {format_duration(SILENT_S)} while {action}", hint) from None
    finally:
        left.set()


def _drop_nameless(connection: Connection, images: Iterable[str]) -> None:
    """Remove images that have lost their name: first stages and the replaced image, a gigabyte each."""
    for image in images:
        with suppress(Refused):  # a container or another build uses it, or it is already gone
            if not connection.ask("GET", f"/images/{image}/json")["RepoTags"]:
                connection.request("DELETE", f"/images/{image}")
