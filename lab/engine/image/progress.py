"""What the engine says while it builds or pulls an image, read line by line. Pure: events in, progress out."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
