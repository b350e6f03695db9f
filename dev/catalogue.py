"""The catalogue of the scenarios that come with the lab: docs/scenarios.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from urllib.parse import quote

from lab.features.lessons.verb_scenarios import read_chapters
from lab.features.suite.view import escape_markdown
from lab.spec.load import find_scenarios, library_folder, load_scenario
from lab.spec.scenario import Scenario

_DESCRIBED = "Essentials"
"""The chapter whose lessons are described; a lesson says itself what it is about, so the others are only named."""


def catalogue() -> str:
    """The page, made from all scenarios."""
    folder = library_folder()
    return catalogue_text(
        folder, {path: load_scenario(path) for path in find_scenarios([folder])}, read_chapters(folder)
    )


def catalogue_text(folder: Path, scenarios: Mapping[Path, Scenario], chapters: Mapping[str, Sequence[str]]) -> str:
    """Every scenario by chapter, those of the first chapter with their size and what they are about.

    Args:
        folder: what the paths are relative to.
        scenarios: by file.
        chapters: from `read_path`; what it does not name comes last.
    """
    by_name = {str(path.relative_to(folder)): scenario for path, scenario in scenarios.items()}
    lines = [
        "# Lessons",
        "",
        f"{len(by_name)} lessons, in the order of a learning path; the first 15 are the essentials. Each is a YAML "
        "file and a script of plain PyTorch.",
        "`lab learn NAME` asks for your prediction, runs the lesson, and compares. `lab learn` shows your progress.",
        "`lab run @NAME` runs a lesson without the question. `lab scenarios` says what each one is about.",
        "",
        "*Italics*: the run fails or hangs on purpose.",
        "",
    ]
    rest = sorted(by_name.keys() - set(chain(*chapters.values())))
    more = {"More" if chapters else "All": rest} if rest else {}
    for chapter, names in {**chapters, **more}.items():
        present = {name: by_name[name] for name in names if name in by_name}
        if chapter == _DESCRIBED:
            rows = [_row(folder, name, scenario) for name, scenario in present.items()]
            shown = ["|lesson|nodes|what it is about|", "|---|---|---|", *rows]
        else:
            shown = [", ".join(_link(folder, name, scenario) for name, scenario in present.items())]
        lines += [f"## {escape_markdown(chapter)}", "", *shown, ""]
    return "\n".join(lines).rstrip() + "\n"


def _row(folder: Path, name: str, scenario: Scenario) -> str:
    about = escape_markdown(first_sentence(scenario.learn), code=True).replace("|", "\\|")
    return " ".join(f"|{_link(folder, name, scenario)}|{size_text(scenario)}|{about}|".split())


def _link(folder: Path, name: str, scenario: Scenario) -> str:
    """A link to a scenario, in italics if its run does not pass."""
    link = f"[{escape_markdown(scenario.name)}](../{quote(folder.name)}/{quote(name)})"
    return link if scenario.expect.verdict == "passed" else f"*{link}*"


def size_text(scenario: Scenario) -> str:
    """The nodes of a scenario, or nodes x ranks on each."""
    nodes = str(scenario.nodes or "any")
    return nodes if (scenario.nproc_per_node or 1) == 1 else f"{nodes}x{scenario.nproc_per_node}"


def first_sentence(text: str) -> str:
    """What stands before the first full stop that ends a sentence."""
    return re.split(r"(?<=[.?!])\s+(?=[A-Z])", " ".join(text.split()), maxsplit=1)[0]
