"""What the engine says while it builds or pulls an image, read line by line: progress, and why a build failed. Pure."""

from __future__ import annotations

import queue
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.engine.docker.image import one_line
from lab.errors import ImageError, ImageUnfit
from lab.words import clip, format_bytes

Event = Mapping[str, Any]
"""One object of the engine's JSON stream, or `{"upload": bytes so far}` from the lab itself."""

TAIL_LINES = 20
"""How much of a failed build's output is kept for the message."""

_STEP = re.compile(r"^(?:\[\d+/\d+\] )?step (\d+)/(\d+) ?: *(.*)", re.IGNORECASE)
_LAYER = re.compile(r"^ ---> ([0-9a-f]{12,64})$")
_BOOKKEEPING = re.compile(r"^ ---> |^Removing intermediate container ")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class ImageProgress:
    """Where a build or a pull stands."""

    step: int
    """Steps (of a build) or layers (of a pull) begun or done so far; 0: not known yet."""
    total: int
    """How many there are; 0: not known yet."""
    text: str
    """What is going on, in one line."""


class BuildLog:
    """Follows a build: which step it is at, its last lines, what it made or why it failed."""

    def __init__(self, upload_bytes: int = 0) -> None:
        self.upload_bytes = upload_bytes
        self.step = 0
        self.total = 0
        self.instruction = ""
        """The Dockerfile's line of the current step."""
        self.error = ""
        """The engine's own word on why the build failed; empty while it has not."""
        self.stages: list[str] = []
        """Image of each stage that ended and is not the last one."""
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._layer = ""
        self._pull = PullLog()

    def read(self, event: Event) -> list[ImageProgress]:
        """Takes one event and returns what is worth showing of it, mostly one line or nothing."""
        if "upload" in event:
            sent, whole = format_bytes(event["upload"]), format_bytes(self.upload_bytes)
            return [self._progress(f"sending wheels to the engine: {sent} of {whole}")]
        if "error" in event:
            self.error = str(event["error"]).strip()
            return []
        if "stream" in event:
            lines = _ESCAPES.sub("", str(event["stream"])).replace("\r", "\n").splitlines()
            return [progress for line in lines if (progress := self._read_line(line)) is not None]
        pulled = self._pull.read(event)
        return [self._progress(f"base image, {pulled.text}")] if pulled else []

    def _read_line(self, line: str) -> ImageProgress | None:
        line = line.rstrip()
        if not line:
            return None
        if layer := _LAYER.match(line):
            self._layer = layer[1]
        if _BOOKKEEPING.match(line):
            return None
        self.tail.append(line)
        if step := _STEP.match(line):
            self.step, self.total, self.instruction = int(step[1]), int(step[2]), step[3]
            if self.instruction.upper().startswith("FROM") and self._layer:
                self.stages.append(self._layer)
            return self._progress(clip(" ".join(self.instruction.split()), 100))
        return self._progress(line.strip())

    def _progress(self, text: str) -> ImageProgress:
        return ImageProgress(self.step, self.total, text)


class PullLog:
    """Follows a pull: how many layers and bytes are there, and why it failed if it did."""

    def __init__(self) -> None:
        self.error = ""
        """The engine's own word on why the pull failed; empty while it has not."""
        self._done: set[str] = set()
        self._bytes: dict[str, tuple[int, int]] = {}

    def read(self, event: Event) -> ImageProgress | None:
        """Takes one event and returns where the pull stands, or None if it says nothing about that."""
        if "error" in event:
            self.error = str(event["error"]).strip()
            return None
        layer, status = str(event.get("id", "")), str(event.get("status", ""))
        if status in {"Pull complete", "Already exists"}:
            self._done.add(layer)
            self._bytes.setdefault(layer, (0, 0))
        elif status in {"Pulling fs layer", "Waiting", "Downloading", "Verifying Checksum", "Download complete"}:
            detail = event.get("progressDetail") or {}
            known = self._bytes.get(layer, (0, 0))
            self._bytes[layer] = (detail.get("current") or known[0], detail.get("total") or known[1])
        elif status != "Extracting":
            return None
        done, total = len(self._done), len(self._bytes)
        text = f"{done} of {total} layers"
        if whole := sum(size for _, size in self._bytes.values()):
            text += f", {format_bytes(sum(got for got, _ in self._bytes.values()))} of {format_bytes(whole)}"
        return ImageProgress(done, total, text)


class Silent(Exception):
    """Nothing was heard for longer than allowed."""


def follow(start: Callable[[Callable[[Event], None]], Iterable[Event]], silent_s: float) -> Iterator[Event]:
    """Yields the events of a request that is made in a thread of its own.

    docker-py has no time-out for the silence of a pull, and a build blocks while its context is sent. In a thread both
    can be waited for with a deadline, and Ctrl-C gets through at once.

    `start` makes the request and returns its stream; it is given a function that adds an event of its own. It
    ends with `Silent`, or with whatever the request raised; the thread ends at the next event or with the process, and
    the engine stops its work when the connection closes.
    """
    events: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
    left = threading.Event()

    def pump() -> None:
        try:
            for event in start(events.put):
                if left.is_set():
                    return
                events.put(event)
        except BaseException as error:  # noqa: BLE001  (handed over whole to the thread that waits)
            events.put(error)
        else:
            events.put(None)

    threading.Thread(target=pump, name="lab-image", daemon=True).start()
    try:
        while True:
            try:
                event = events.get(timeout=silent_s)
            except queue.Empty:
                raise Silent from None
            if event is None:
                return
            if isinstance(event, BaseException):
                raise event
            yield event
    finally:
        left.set()


_AIR_GAPPED = "without a registry: `lab image build --base LOCAL_IMAGE --wheels DIR` (docs/air-gapped.md)"

_HINTS: tuple[tuple[str, str], ...] = (
    (r"no space left on device", "make room where the engine keeps its images; `docker system df` shows what takes it"),
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
    """Tells whether a failed pull is worth another try: the connection failed, the registry did not refuse."""
    return _TRANSIENT.search(reason) is not None


def pull_failed(image: str, reason: str) -> ImageUnfit:
    """Returns the error for an image that is not here and cannot be pulled."""
    return ImageUnfit(f"the image {image} is not here and cannot be pulled: {one_line(reason)}", _hint(reason))


def build_failed(image: str, reason: str, *, step: str = "", tail: Sequence[str] = ()) -> ImageError:
    """Returns the error for a failed build; the last lines of its output are printed below the sentence."""
    if match := _COMMAND_FAILED.match(reason):
        sentence = f"{step or 'a step'} exited with code {match[1]}"
    else:
        sentence = f"{step}: {one_line(reason)}" if step else one_line(reason)
    text = f"the image {image} cannot be built: {sentence}"
    if tail:
        text += "\n" + "\n".join(f"  | {one_line(line, 160)}" for line in tail)
    return ImageError(text, _hint("\n".join((*tail, reason))) or "the lines above are the end of the build's output")


def _hint(text: str) -> str:
    return next((hint for pattern, hint in _HINTS if re.search(pattern, text, re.IGNORECASE)), "")
