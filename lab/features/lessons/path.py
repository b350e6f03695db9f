"""The learning path: which lessons there are, in which order, and which one comes next."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.features.lessons.catalogue import PATH_FILE, read_path
from lab.spec.lessons import OWN_FOLDER, files_below, library_folder


@dataclass(frozen=True, kw_only=True)
class LearningPath:
    """The lessons of a folder, in the order in which to take them."""

    folder: Path
    chapters: Mapping[str, tuple[str, ...]]
    """Names of the lessons of each chapter."""

    @property
    def names(self) -> list[str]:
        """All of them, in order."""
        return [name for names in self.chapters.values() for name in names]

    def place(self, name: str) -> str:
        """`lesson 3 of 92, First steps`; empty for a lesson that is not on the path."""
        if name not in self.names:
            return ""
        chapter = next(chapter for chapter, names in self.chapters.items() if name in names)
        return f"lesson {self.names.index(name) + 1} of {len(self.names)}, {chapter}"

    def next_after(self, name: str, done: Collection[str]) -> str:
        """The first lesson behind this one that is not done, or else the first of all; empty when all are done."""
        names = self.names
        at = names.index(name) + 1 if name in names else 0
        return next((each for each in (*names[at:], *names[:at]) if each not in done and each != name), "")


def learning_path(folder: Path | None = None) -> LearningPath:
    """The path of a folder; by default of the current folder's scenarios if they have one, else of the lab's lessons.

    Raises:
        ScenarioError: the file that states the path is not valid.
    """
    if folder is None:
        folder = OWN_FOLDER if (OWN_FOLDER / PATH_FILE).is_file() else library_folder()
    stated = read_path(folder) or {"Lessons": [str(file.relative_to(folder)) for file in files_below(folder)]}
    chapters = {
        chapter: tuple(name_of(folder / name) for name in names if (folder / name).is_file())
        for chapter, names in stated.items()
    }
    return LearningPath(folder=folder, chapters=chapters)


def name_of(file: Path) -> str:
    """What a lesson is called on the path and in what is kept: the name of its file."""
    return file.stem.replace("-", "_")
