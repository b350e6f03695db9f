"""Locate a rank by a stack from faulthandler or by the traceback of its error."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from lab.diagnosis.finding import ELSEWHERE, CodeLocation
from lab.errors import RecordError
from lab.record.record_files import read_beginning
from lab.words import clip_end

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*:$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+),? in (?P<function>.*)$', re.MULTILINE)
"""A traceback has a comma here, faulthandler has none."""
_WORK = re.compile(r"^.*/run/work/")
_ANY_WORK = re.compile(r"/(?:[^\s\"':]*/)?run/work/")
_PACKAGES = re.compile(r"(?<=\")/[^\"\n]*/(?:site|dist)-packages/")
_CRASHED = re.compile(r"^Current thread 0x[0-9a-f]+.*:$", re.MULTILINE)
_OWN_FRAME = re.compile(r'^  File ".*/labnode/[\w/]+\.py", line .*\n?', re.MULTILINE)
_OWN_START = re.compile(r'(?:^  File "<string>", line \d+ in .*\n?)+\Z', re.MULTILINE)
"""The outermost frames: Python gets the first program of a node, or of a cold worker, as a string."""
_LEAVING = re.compile(r'^  File ".*labnode/(?:node/)?rank/worker\.py", line \d+,? in _leave$', re.MULTILINE)
_RETURNED = re.compile(
    r'^  File ".*(?:labnode/[\w/]*/calls\.py", line \d+,? in await_call'
    r'|multiprocessing/synchronize\.py", line \d+,? in wait\n  File ".*/elastic/multiprocessing/api\.py".* in _wrap)$',
    re.MULTILINE,
)
"""A function of the lab, or one that PyTorch's elastic launcher called."""
_FATAL = "Fatal Python error"
_CHILD = re.compile(r"^Process \d+, started by this worker:\n", re.MULTILINE)
"""The agent writes this line before the stack of a process that a worker forked, after the worker's own stack."""
_FORKED = re.compile(
    r'(?:^  File ".*/(?:multiprocessing/(?:process|pool|spawn)|concurrent/futures/process)\.py", line \d+ in .*\n)*'
    r'^  File ".*/multiprocessing/process\.py", line \d+ in _bootstrap$',
    re.MULTILINE,
)
"""Where a process of multiprocessing began. Frames further out belong to the parent of a fork."""
_LOADER = "torch/utils/data/_utils/worker.py"
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):", re.MULTILINE)
_IMPORTS = "<frozen importlib._bootstrap>"
_PLUMBING = ("wrapper", "_time_logger", "inner")
_COMMUNICATES = re.compile(
    r"torch/distributed/|torch/nn/parallel/distributed|torch/autograd/|/labnode/(?:node/)?(?:recorder/|rank/(?:rendezvous|groups))"
)


def find_location(dump: str, folder: Path) -> CodeLocation | None:
    """Return the innermost line of the script on the stack of the crashed thread, or else of the main thread.

    If the script is not on that stack, return another line of it; None if the script was over.
    """
    (_, own), *forks = _parts(dump)
    location = _innermost(_frames(_main_part(own)), folder)
    if location is None or (not location.own and (is_leaving(dump) or has_returned(dump))):
        return None
    for frames in (_frames(_main_part(fork)) for _, fork in forks):  # the first fork in the script's own code
        if any(map(_is_own, frames)) and (child := _innermost(frames, folder)) is not None:
            loader = any(frame["file"].endswith(_LOADER) for frame in frames)
            return replace(location, child=replace(child, loader=loader))
    return location


def name_own_files(text: str, folder: Path | str) -> str:
    """Return stacks in which a job's own files, those below a folder but no libraries, have the paths of a script."""
    own = rf'(?<=File "){re.escape(f"{folder}/")}(?![^"\n]*/(?:site-packages|lib/python\d|labnode/))'
    return re.sub(own, "/run/work/", text)


def _frames(text: str) -> list[dict[str, str]]:
    return [match.groupdict() for match in _FRAME.finditer(text)]


def _main_part(dump: str) -> str:
    """Return the stack of the thread that matters.

    Faulthandler writes the innermost frame first, and the main thread last.
    """
    dump = _CHILD.split(dump)[0]
    crashed = _CRASHED.search(dump) if dump.startswith(_FATAL) else None
    return _THREAD.split(dump[crashed.end() :])[0] if crashed else _THREAD.split(dump)[-1]


def is_leaving(dump: str) -> bool:
    """Return whether the script was over and its process had not ended yet."""
    return _LEAVING.search(_main_part(dump)) is not None


def has_returned(dump: str) -> bool:
    """Return whether the rank's function had returned, so that it waited for the next call."""
    return _RETURNED.search(_main_part(dump)) is not None


def find_threads(dump: str, folder: Path) -> list[CodeLocation]:
    """Return the innermost line of the script for each thread but the main one, if it has such a line."""
    (_, own), *_ = _parts(dump)
    parts = [_frames(part) for part in _THREAD.split(own)[:-1]]
    return [location for frames in parts if (location := _innermost(frames, folder)) is not None and location.own]


def find_raised(traceback: str, folder: Path) -> CodeLocation | None:
    """Return the innermost line of the script in a traceback, whose last frame is the innermost."""
    return _innermost(_frames(traceback)[::-1], folder)


def is_communicating(dump: str) -> bool:
    """Return whether the innermost frame is in code in which PyTorch waits for other ranks.

    A backward pass counts: it runs in C++ below one Python frame, and at its end waits for gradients.
    """
    frame = _FRAME.search(_main_part(dump))
    return frame is not None and bool(_COMMUNICATES.search(frame["file"]))


def is_importing(dump: str) -> bool:
    """Return whether the main thread was inside an import that the script, or what it called, had begun."""
    frames = _frames(_main_part(dump))
    own = next((index for index, frame in enumerate(frames) if _is_own(frame)), len(frames))
    return any(frame["file"] == _IMPORTS for frame in frames[:own])


def _innermost(frames: list[dict[str, str]], folder: Path) -> CodeLocation | None:
    for index, frame in enumerate(frames):
        if _is_own(frame):
            file, line, call = _WORK.sub("", frame["file"]), int(frame["line"]), _function_of_torch(frames[:index])
            return CodeLocation(file=file, line=line, call=call, source=_source(folder, file, line))
    return CodeLocation(file=frames[0]["file"], line=int(frames[0]["line"]), call="") if frames else None


def _is_own(frame: dict[str, str]) -> bool:
    """Whether a frame is the script's."""
    return bool(_WORK.match(frame["file"])) or not frame["file"].startswith(ELSEWHERE)


def _function_of_torch(inner: list[dict[str, str]]) -> str:
    """The function of torch.distributed that the script called, the outermost of the frames inside it."""
    for frame in reversed(inner):
        if "torch/distributed" in frame["file"] and frame["function"] not in _PLUMBING:
            return frame["function"]
        if "torch/nn/parallel/distributed" in frame["file"]:
            return f"DistributedDataParallel.{frame['function']}"
    return ""


def script_files(text: str) -> set[str]:
    """Return the files in the script's folder that a stack or traceback names.

    Paths that lead out of the folder are left out.
    """
    names = {_WORK.sub("", frame["file"]) for frame in _FRAME.finditer(text) if _WORK.match(frame["file"])}
    return {name for name in names if not name.startswith("/") and ".." not in Path(name).parts}


def _source(record: Path, file: str, number: int) -> str:
    try:
        lines = read_beginning(record, file).split("\n")
    except (OSError, RecordError):  # the file is not in the record, or leads out of it
        return ""
    return clip_end(lines[number - 1].strip(), 120) if 0 < number <= len(lines) else ""


def shorten_paths(text: str) -> str:
    """Make paths in a traceback relative to the script's folder, or to the folder of packages."""
    return _PACKAGES.sub("", _ANY_WORK.sub("", text))


def shorten_stack(dump: str) -> str:
    """Return the thread that matters, and forks in the script's code, without the lab's frames."""
    parts = [(head, text) for head, text in _parts(dump) if not head or any(map(_is_own, _frames(_main_part(text))))]
    frames = [(head, _OWN_FRAME.sub("", _main_part(text)).partition("\nExtension modules:")[0]) for head, text in parts]
    return "\n".join(head + shorten_paths(_OWN_START.sub("", text.strip("\n")).strip("\n")) for head, text in frames)


def _parts(text: str) -> list[tuple[str, str]]:
    """Return the stack of a worker and those of its forks, each with the line before it."""
    stacks = [_FORKED.split(stack)[0] for stack in _CHILD.split(text)]
    return list(zip(["", *_CHILD.findall(text)], stacks, strict=True))


def clip_stack(text: str, most: int) -> list[str]:
    """Return the innermost lines of a stack or traceback, including at least the innermost frame of the script.

    In a traceback the innermost frame is last. In a stack it is first, which its first line says as in faulthandler.
    Forks follow, each with half as many lines.
    """
    (_, own), *forks = _parts(text)
    shown = [*(["Stack (most recent call first):"] if own and not _TRACEBACK.search(own) else ()), *_clip(own, most)]
    for head, fork in forks:
        shown += [head.strip(), *_clip(fork, most // 2)]
    return shown


def _clip(text: str, most: int) -> list[str]:
    lines = text.strip("\n").splitlines()
    traceback = _TRACEBACK.search(text) is not None
    own = [n for n, line in enumerate(lines) if (frame := _FRAME.match(line)) and _is_own(frame.groupdict())]
    if own and not traceback:
        lines = lines[: own[-1] + 1]  # without what started the script's code, as multiprocessing does
    shown = range(len(lines))[-most:] if traceback else range(len(lines))[:most]
    innermost = own[-1 if traceback else 0] if own else None
    if innermost is None or innermost in shown:
        return [lines[n] for n in shown]
    until = innermost + 1
    while until < len(lines) and lines[until].startswith("    "):
        until += 1  # a traceback has the source line below the frame
    location, remaining = lines[innermost:until], most - (until - innermost) - 1
    kept = [lines[n] for n in (shown[-remaining:] if traceback else shown[:remaining])]
    return [*location, "  …", *kept] if traceback else [*kept, "  …", *location]
