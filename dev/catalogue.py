"""The catalogue of the scenarios that come with the lab: docs/scenarios.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from urllib.parse import quote

from lab.features.lessons.question import scenario_question
from lab.features.lessons.verb_scenarios import read_chapters
from lab.report.harmless import in_markdown
from lab.spec.load import find_scenarios, library_folder, load_scenario
from lab.spec.scenario import Scenario
from lab.words import capital


def catalogue() -> str:
    """The page, made from all scenarios."""
    folder = library_folder()
    return catalogue_text(
        folder, {path: load_scenario(path) for path in find_scenarios([folder])}, read_chapters(folder)
    )


def catalogue_text(folder: Path, scenarios: Mapping[Path, Scenario], chapters: Mapping[str, Sequence[str]]) -> str:
    """Every scenario with what it asks and teaches.

    Args:
        folder: what the paths are relative to.
        scenarios: by file.
        chapters: from `read_path`; what it does not name comes last.
    """
    by_name = {str(path.relative_to(folder)): scenario for path, scenario in scenarios.items()}
    lines = [
        "# Scenarios",
        "",
        f"{len(by_name)} lessons, each a YAML file beside a script of plain PyTorch. The order is a learning path,",
        "from the first broadcast to sharded training. `lab learn NAME` takes one as a lesson: it shows the script,",
        "asks for your prediction, runs, and says whether that held; `lab learn` shows what you have done. Below each",
        "question stands what the run shows.",
        "",
        "This page is made from the scenarios: `python dev/make_reference.py`.",
        "",
    ]
    rest = sorted(by_name.keys() - set(chain(*chapters.values())))
    more = {"More" if chapters else "All": rest} if rest else {}
    for chapter, names in {**chapters, **more}.items():
        lines += [f"## {in_markdown(chapter)}", ""]
        lines += [line for name in names if name in by_name for line in _entry(folder, name, by_name[name])]
    return "\n".join(lines).rstrip() + "\n"


def _entry(folder: Path, name: str, scenario: Scenario) -> list[str]:
    size = f"{scenario.nodes or 'any number of'} node{'s' if scenario.nodes != 1 else ''}"
    if scenario.nproc_per_node and scenario.nproc_per_node > 1:
        size += f" x {scenario.nproc_per_node} workers"
    outcome = f"*{capital(scenario.expect.verdict)} on purpose.* " if scenario.expect.verdict != "passed" else ""
    told = f"{outcome}{in_markdown(scenario.learn, code=True)}"
    lines = [f"### [{in_markdown(scenario.name)}](../{quote(folder.name)}/{quote(name)})", ""]
    question = scenario_question(scenario)
    if not question.ask:
        lines += [f"*{size}.* {told}", ""]
    else:
        choices = [f"- {in_markdown(choice, code=True)}" for choice in question.choices]
        lines += [
            f"*{size}.* {in_markdown(question.ask, code=True)}",
            "",
            *([*choices, ""] if choices else []),
            f"> {told}",
            "",
        ]
    return [" ".join(line.split()) for line in lines]
