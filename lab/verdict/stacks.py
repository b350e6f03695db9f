"""Where a rank was, from the Python stack that faulthandler wrote or the traceback of what it raised."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lab.words import clip

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*:$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+),? in (?P<function>.*)$', re.MULTILINE)
"""A traceback writes a comma, faulthandler does not."""
_WORK = re.compile(r"^.*/run/work/")
_ANY_WORK = re.compile(r"/(?:[^\s\"':]*/)?run/work/")
_PACKAGES = re.compile(r"(?<=\")/[^\"\n]*/(?:site|dist)-packages/")
_CRASHED = re.compile(r"^Current thread 0x[0-9a-f]+.*:$", re.MULTILINE)
_OWN_FRAME = re.compile(r'^  File ".*/labnode/[\w/]+\.py", line .*\n?', re.MULTILINE)
_OWN_START = re.compile(r'(?:^  File "<string>", line \d+ in .*\n?)+\Z', re.MULTILINE)
"""The outermost frames: a node's first program, or a cold worker's, is given to Python as a string."""
_LEAVING = re.compile(r'^  File ".*labnode/worker\.py", line \d+,? in _leave$', re.MULTILINE)
_FATAL = "Fatal Python error"
_PLUMBING = ("wrapper", "_time_logger", "inner")
_ELSEWHERE = ("/", "<", "torch/", "numpy/", "labnode/")
"""How paths begin that are not the script's own, those of a text that `shorten_paths` has been through too."""
_COMMUNICATES = re.compile(
    r"torch/distributed/|torch/nn/parallel/distributed|torch/autograd/|/labnode/(?:recorder/|rendezvous)"
)


@dataclass(frozen=True, kw_only=True)
class CodePlace:
    """A line of the script where a rank was."""

    file: str
    """Relative to the script's folder; a whole path where the script's own code was not on the stack."""
    line: int
    call: str
    """The function of torch.distributed that the script was in; empty if it was in none."""
    source: str = ""
    """The text of the line; empty where it is not known."""

    @property
    def own(self) -> bool:
        """Whether it is in the script's own code."""
        return not self.file.startswith(_ELSEWHERE)

    @property
    def at(self) -> str:
        """`train.py:41`."""
        return f"{self.file}:{self.line}"

    def sentence(self) -> str:
        """The place in words: `in all_reduce at train.py:41`."""
        if self.call:
            return f"in {self.call} at {self.at}"
        return f"at {self.at} ({self.source})" if self.source else f"at {self.at}"


def find_place(dump: str, folder: Path) -> CodePlace | None:
    """The innermost line of the script's own code on the stack of the thread that crashed, or else the main thread.

    Where the script's code is not on that stack, a line elsewhere; None if the script was over.
    """
    place = _innermost([match.groupdict() for match in _FRAME.finditer(_main_part(dump))], folder)
    return None if place is not None and not place.own and is_leaving(dump) else place


def _main_part(dump: str) -> str:
    """The stack of the thread that matters; faulthandler writes the innermost frame first, the main thread last."""
    if dump.startswith(_FATAL) and (crashed := _CRASHED.search(dump)):
        return _THREAD.split(dump[crashed.end() :])[0]
    return _THREAD.split(dump)[-1]


def is_leaving(dump: str) -> bool:
    """Whether the script was over, and its process had not ended yet."""
    return _LEAVING.search(_main_part(dump)) is not None


def find_threads(dump: str, folder: Path) -> list[CodePlace]:
    """The innermost line of the script on the stack of each thread but the main one, where it has such a line."""
    parts = [[match.groupdict() for match in _FRAME.finditer(part)] for part in _THREAD.split(dump)[:-1]]
    return [place for frames in parts if (place := _innermost(frames, folder)) is not None and place.own]


def find_raised(traceback: str, folder: Path) -> CodePlace | None:
    """The innermost line of the script's own code in a traceback, whose innermost frame comes last."""
    return _innermost([match.groupdict() for match in _FRAME.finditer(traceback)][::-1], folder)


def is_communicating(dump: str) -> bool:
    """Whether the innermost frame of the thread that matters is one where PyTorch waits for other ranks.

    A backward pass counts: it runs in C++ below one Python frame, and ends by waiting for gradients.
    """
    frame = _FRAME.search(_main_part(dump))
    return frame is not None and bool(_COMMUNICATES.search(frame["file"]))


def _innermost(frames: list[dict[str, str]], folder: Path) -> CodePlace | None:
    for index, frame in enumerate(frames):
        if _WORK.match(frame["file"]) or not frame["file"].startswith(_ELSEWHERE):
            file, line, call = _WORK.sub("", frame["file"]), int(frame["line"]), _function_of_torch(frames[:index])
            return CodePlace(file=file, line=line, call=call, source=_source(folder, file, line))
    if not frames:
        return None
    return CodePlace(file=frames[0]["file"], line=int(frames[0]["line"]), call="")


def _function_of_torch(inner: list[dict[str, str]]) -> str:
    """The function of torch.distributed that the script called, the outermost of the frames inside it."""
    for frame in reversed(inner):
        if "torch/distributed" in frame["file"] and frame["function"] not in _PLUMBING:
            return frame["function"]
        if "torch/nn/parallel/distributed" in frame["file"]:
            return f"DistributedDataParallel.{frame['function']}"
    return ""


def script_files(text: str) -> set[str]:
    """The files of the script's folder that a stack or traceback names; what leads out of it is not among them."""
    names = {_WORK.sub("", frame["file"]) for frame in _FRAME.finditer(text) if _WORK.match(frame["file"])}
    return {name for name in names if not name.startswith("/") and ".." not in Path(name).parts}


def _source(folder: Path, file: str, number: int) -> str:
    path = folder / file
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n") if inside else []
    except OSError:
        return ""
    return clip(lines[number - 1].strip(), 120) if 0 < number <= len(lines) else ""


def shorten_paths(text: str) -> str:
    """A traceback with paths relative to the script's folder, and those of packages to where packages are."""
    return _PACKAGES.sub("", _ANY_WORK.sub("", text))


def shorten_stack(dump: str) -> str:
    """What faulthandler wrote of the thread that matters, without the lab's own frames."""
    frames = _OWN_FRAME.sub("", _main_part(dump)).partition("\nExtension modules:")[0]
    return shorten_paths(_OWN_START.sub("", frames.strip("\n")).strip("\n"))
