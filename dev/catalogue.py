"""The catalogue of the scenarios that come with the lab: docs/scenarios.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from urllib.parse import quote

from lab.features.lessons.verb_scenarios import read_chapters
from lab.report.sanitize import escape_markdown
from lab.spec.load import find_scenarios, library_folder, load_scenario
from lab.spec.scenario import Scenario
from lab.words import capitalize_first


def catalogue() -> str:
    """The page, made from all scenarios."""
    folder = library_folder()
    return catalogue_text(
        folder, {path: load_scenario(path) for path in find_scenarios([folder])}, read_chapters(folder)
    )


def catalogue_text(folder: Path, scenarios: Mapping[Path, Scenario], chapters: Mapping[str, Sequence[str]]) -> str:
    """Every scenario with its size and what it teaches.

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
        "`lab learn NAME` shows the script, asks for your prediction, runs it, and shows whether your prediction held.",
        "`lab learn` alone shows your progress. `lab run @NAME` runs a lesson without the question. Numbers in",
        "parentheses are nodes, or nodes x ranks per node.",
        "",
    ]
    rest = sorted(by_name.keys() - set(chain(*chapters.values())))
    more = {"More" if chapters else "All": rest} if rest else {}
    for chapter, names in {**chapters, **more}.items():
        rows = [_row(folder, name, by_name[name]) for name in names if name in by_name]
        lines += [f"## {escape_markdown(chapter)}", "", *rows, ""]
    return "\n".join(lines).rstrip() + "\n"


def _row(folder: Path, name: str, scenario: Scenario) -> str:
    nodes = str(scenario.nodes or "any")
    size = nodes if (scenario.nproc_per_node or 1) == 1 else f"{nodes}x{scenario.nproc_per_node}"
    outcome = (
        f"*{capitalize_first(scenario.expect.verdict)} on purpose.* " if scenario.expect.verdict != "passed" else ""
    )
    link = f"[{escape_markdown(scenario.name)}](../{quote(folder.name)}/{quote(name)})"
    return " ".join(f"- {link} ({size}): {outcome}{escape_markdown(scenario.learn, code=True)}".split())
