"""Submissions: find them, unpack them within limits, and combine them with the files of the assignment."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from lab.errors import UsageError
from lab.features.grade.grades import flatten_text
from lab.features.grade.keys import scenario_grading
from lab.frozen import Frozen
from lab.node.files import escape_path
from lab.node.processes import read_stat
from lab.spec.scenario import Scenario
from lab.words import format_limit, join_words

_CHUNK_BYTES = 1 << 18
_FIRST_PRINTABLE = " "
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class SizeLimits(NamedTuple):
    """Limits of a submission or a zip file."""

    bytes: int
    files: int
    depth: int = 20
    """Levels of nested folders."""

    def check_limits(self, count: int, size: int) -> None:
        """Refuse more files or bytes than the limits allow.

        Raises:
            UsageError: A limit is exceeded.
        """
        if size > self.bytes:
            raise UsageError(f"it has more than {format_limit(self.bytes)}")
        if count > self.files:
            raise UsageError(f"it has more than {self.files:,} files")


class _Entry(NamedTuple):
    """An entry of a submission that is not a folder."""

    path: PurePosixPath
    open: Callable[[], IO[bytes]] | None
    """None for a link or a device."""


def _copy(entries: Iterable[_Entry], folder: Path, limits: SizeLimits) -> list[str]:
    """Write files into a folder; return descriptions of skipped entries.

    Archives can state wrong sizes, so the function counts the bytes as it reads them.

    Raises:
        UsageError: A file exceeds a limit, is unreadable, or has the same path as another one.
    """
    left_out, size = list[str](), 0
    for number, entry in enumerate(entries, start=1):
        name = escape_path(str(entry.path))
        limits.check_limits(number, size)
        if len(entry.path.parts) > limits.depth:
            raise UsageError(f"it has folders nested more than {limits.depth} deep")
        if entry.open is None:
            left_out.append(f"{name} is a link or a device")
            continue
        target = folder / entry.path
        try:
            os.makedirs(target.parent, exist_ok=True)
            with entry.open() as source, open(target, "xb") as file:
                while chunk := source.read(_CHUNK_BYTES):
                    size += len(chunk)
                    limits.check_limits(number, size)
                    file.write(chunk)
        except FileExistsError:
            raise UsageError(f"it has {name!r} twice") from None
        except OSError as error:
            raise UsageError(f"cannot read {name}: {error.strerror or error}") from error
    return left_out


def unzip_file(path: Path, folder: Path, limits: SizeLimits) -> list[str]:
    """Unpack a zip file into an empty folder; return descriptions of skipped entries.

    Links and the files that macOS adds are skipped.

    Raises:
        UsageError: The file is not a zip file, is damaged, needs a password, or is too large; or it has a path outside
            the folder, a path twice, or a path that other systems read differently.
    """
    try:
        limits.check_limits(0, path.stat().st_size)
        with zipfile.ZipFile(path) as archive:
            limits.check_limits(len(archive.infolist()), 0)
            return _copy(_zip_entries(archive), folder, limits)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise UsageError("it is not a zip file, or it is damaged") from error
    except RuntimeError as error:  # zipfile raises it for passwords; NotImplementedError is a subclass
        raise UsageError("it needs a password") from error
    except OSError as error:
        raise UsageError(f"cannot unpack it: {error.strerror or error}") from error


def _zip_entries(archive: zipfile.ZipFile) -> Iterator[_Entry]:
    for entry in archive.infolist():
        name, path = entry.filename, PurePosixPath(entry.filename)
        is_foreign = not path.parts or "\\" in name or ":" in path.parts[0] or path.is_absolute()
        if is_foreign or ".." in path.parts or any(letter < _FIRST_PRINTABLE for letter in name):
            raise UsageError(f"it has the path {name[:100]!r}, which is not below a folder")
        if entry.is_dir() or path.parts[0] == "__MACOSX" or path.name == ".DS_Store":
            continue
        if entry.compress_type not in _COMPRESSIONS:  # other methods may need gigabytes of memory
            raise UsageError("it uses an unsupported compression; allowed: deflate")
        is_plain = stat.S_IFMT(entry.external_attr >> 16) in (0, stat.S_IFREG)
        yield _Entry(path, partial(archive.open, entry) if is_plain else None)


def _folder_entries(top: Path) -> Iterator[_Entry]:
    queue = [PurePosixPath()]
    while queue:
        folder = queue.pop()
        for path in _list_visible(top / folder):
            if stat.S_ISDIR(os.lstat(path).st_mode):
                queue.append(folder / path.name)
            else:
                yield _Entry(folder / path.name, _make_opener(path))


def _make_opener(path: Path) -> Callable[[], IO[bytes]] | None:
    """Return a function that opens a regular file, but no link created meanwhile; None for any other path."""
    return (lambda: open(os.open(path, _FILE), "rb")) if stat.S_ISREG(os.lstat(path).st_mode) else None


_MOODLE = re.compile(r"_assignsubmission_(?:file|onlinetext)_?$")
"""The suffix that Moodle adds to a person's name and number."""
_IGNORED_FOLDERS = ("__MACOSX", "__pycache__", "node_modules", "venv")


class Submission(Frozen):
    """The files that one person handed in."""

    name: str
    """Name of the file or folder, without its ending."""
    path: Path
    """A script, a folder or a zip file."""
    refusal: str = ""
    """Why the submission is refused; empty if it is not."""
    message: str = ""
    """A sentence for the author about the submission's name; empty if there is none."""


def find_submissions(folder: Path, excluded: Collection[Path] = ()) -> list[Submission]:
    """Return every `NAME.py`, `NAME.zip`, and folder `NAME` in a folder, by name; no two names look alike.

    Other files, hidden entries, the paths in `excluded`, and the folders around these are skipped. The function follows
    no links: it refuses a link in place of a submission.

    Raises:
        UsageError: The folder is unreadable, or has no submission.
    """
    excluded = [Path(os.path.realpath(path)) for path in excluded]
    with UsageError.on_os_error(f"cannot read {folder}"), os.scandir(folder) as entries:
        submissions = [one for entry in entries if (one := _read_submission(entry, excluded))]
    if not submissions:
        raise UsageError(f"{folder} has no submissions", "a submission is NAME.py, NAME.zip, or a folder NAME")
    return sorted(_make_names_unique(submissions), key=lambda one: one.name)


def _read_submission(entry: os.DirEntry[str], excluded: Collection[Path]) -> Submission | None:
    name, ending = os.path.splitext(entry.name)
    mode, refusal = entry.stat(follow_symlinks=False).st_mode, ""
    is_folder, is_file = stat.S_ISDIR(mode), ending.lower() in (".py", ".zip")
    if entry.name.startswith((".", "__")) or entry.name in _IGNORED_FOLDERS or not (is_folder or is_file):
        return None
    if not is_folder and not stat.S_ISREG(mode):
        refusal = f"{escape_path(entry.name)} is a link or a device, not a file"
    real = Path(os.path.realpath(entry.path))
    if not refusal and any(one == real or real in one.parents for one in excluded):
        return None
    name = entry.name if is_folder else name
    person = escape_path(_MOODLE.sub("", name)) or escape_path(name)
    return Submission(name=person, path=Path(entry.path), refusal=refusal)


def _make_names_unique(submissions: Iterable[Submission]) -> Iterator[Submission]:
    """Name each submission so that no two names look alike, with a message if the name is not its own."""
    ordered = sorted(submissions, key=lambda one: os.fsencode(one.path.name))
    counts = Counter(_comparable_name(one.name) for one in ordered)
    used_names = {comparable for comparable, count in counts.items() if count == 1}
    for one in ordered:
        alike, name, message = counts[_comparable_name(one.name)], flatten_text(one.name), ""
        if alike > 1:
            file_name = flatten_text(escape_path(one.path.name))
            names = chain([file_name], (flatten_text(f"{file_name} ({number})") for number in count(2)))
            name = next(name for name in names if _comparable_name(name) not in used_names)
            used_names.add(_comparable_name(name))
            message = f"{alike} submissions have similar names: this one is graded as {name!r}"
        yield replace(one, name=name, message=message)


def _comparable_name(name: str) -> str:
    """Return a key that is equal for names that a person, a file system, or a spreadsheet cannot tell apart."""
    shown = unicodedata.normalize("NFKC", flatten_text(unicodedata.normalize("NFKC", name))).casefold()
    return unicodedata.normalize("NFKC", shown).lstrip("'")


SUBMISSION_LIMITS = SizeLimits(bytes=16 << 20, files=1000)
"""Limits of one submission."""
_PREFIX = "lab-grade-"
_MAX_MESSAGES = 3
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SKIPPED_NAMES = {"__pycache__", "__MACOSX", "node_modules", "venv", "site-packages"}


@contextmanager
def stage_submission(submission: Submission, assignment: Scenario) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Copy a submission to a temporary folder as the script of an assignment, until the block ends.

    The function follows no links and skips hidden files.

    Yields:
        The script, in a folder of its own, and messages for the author, one sentence each.

    Raises:
        UsageError: The submission cannot run; the message is for its author.
    """
    if submission.refusal:
        raise UsageError(submission.refusal)
    with temporary_folder() as own:
        unpacked, folder = own / "unpacked", own / "work"
        unpacked.mkdir()
        folder.mkdir()
        messages = [submission.message, *_copy_submission(submission.path, unpacked, folder, assignment.script.name)]
        messages += _add_files(assignment, folder)
        yield folder / assignment.script.name, tuple(filter(None, messages))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a temporary folder that names its process, and remove the folders of dead processes."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        pid = leftover.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):  # another process has just removed it
            if pid.isdigit() and not read_stat(pid) and leftover.lstat().st_uid == os.geteuid():
                shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _copy_submission(source: Path, unpacked: Path, folder: Path, name: str) -> list[str]:
    """Copy a submission into an empty folder; return the messages for its author."""
    if source.suffix.lower() == ".py":
        return _left_out_messages(_copy([_Entry(PurePosixPath(name), _make_opener(source))], folder, SUBMISSION_LIMITS))
    messages = []
    if source.is_file():
        messages, source = _left_out_messages(unzip_file(source, unpacked, SUBMISSION_LIMITS)), unpacked
    top = _find_script_folder(source, name)
    zips = [path for path in _list_visible(top) if path.suffix.lower() == ".zip" and not path.is_symlink()]
    if source is not unpacked and len(zips) == 1 and not _list_scripts(top):
        messages += _left_out_messages(unzip_file(zips[0], unpacked, SUBMISSION_LIMITS))
        top = _find_script_folder(unpacked, name)
    messages += _left_out_messages(_copy(_folder_entries(top), folder, SUBMISSION_LIMITS))
    if not (folder / name).is_file():
        scripts = _list_scripts(folder)
        if len(scripts) != 1:
            contents = join_words(escape_path(path.name) for path in _list_visible(folder)[:10])
            raise UsageError(f"it has no {name}" + (f"; it has {contents}" if contents else ": it is empty"))
        os.replace(scripts[0], folder / name)
        messages.append(f"the lab ran {escape_path(scripts[0].name)} as {name}, because it is the only script")
    return messages


def _find_script_folder(folder: Path, name: str) -> Path:
    """Return the folder that holds the script: the given one, or the only folder in it."""
    for _ in range(SUBMISSION_LIMITS.depth):
        inside = _list_visible(folder)
        if len(inside) != 1 or inside[0].name == name or inside[0].is_symlink() or not inside[0].is_dir():
            break
        folder = inside[0]
    return folder


def _list_visible(folder: Path) -> list[Path]:
    with UsageError.on_os_error("cannot read it"):
        names = sorted(os.listdir(folder))
    visible = (name for name in names if not name.startswith(".") and not name.endswith((".pyc", ".pyo")))
    return [folder / name for name in visible if name not in _SKIPPED_NAMES]


def _list_scripts(folder: Path) -> list[Path]:
    return [path for path in _list_visible(folder) if path.suffix == ".py" and path.is_file() and not path.is_symlink()]


def _add_files(assignment: Scenario, folder: Path) -> list[str]:
    """Add the files of the assignment, which replace files of the submission with the same name."""
    messages = []
    for name in scenario_grading(assignment).files:
        source, target = assignment.script.parent / name, folder / name
        if _clear_path(folder, target):
            messages.append(f"{name} is part of the assignment: the lab does not use yours")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, copy_function=shutil.copyfile)  # contents, but no modes or attributes
        else:
            shutil.copyfile(source, target)
    return messages


def _clear_path(folder: Path, target: Path) -> bool:
    """Remove whatever blocks a path below a folder; return whether there was something."""
    if target.is_dir():
        shutil.rmtree(target)
        return True
    for path in (target, *target.parents):
        if path.is_file():
            path.unlink()
            return True
        if path == folder:
            break
    return False


def _left_out_messages(phrases: list[str]) -> list[str]:
    remainder = f" (and {len(phrases) - _MAX_MESSAGES} more)" if len(phrases) > _MAX_MESSAGES else ""
    return [f"skipped: {join_words(phrases[:_MAX_MESSAGES])}{remainder}"] if phrases else []
