"""The README of each feature: what it adds, what it needs, and what is in its files, from their own words."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable
from pathlib import Path

from lab.feature import Feature, import_entry, list_features

ROOT = Path(__file__).resolve().parent.parent
_PAGES = {"suite": "ci", "export": "trace-exports", "network_model": "network-model", "calls": "snapshots"}
"""The page of the docs on a feature, where it has another name."""


def readmes() -> dict[Path, str]:
    """Their texts, by file."""
    folder = ROOT / "lab" / "features"
    return {folder / one.name / "README.md": _readme(folder / one.name, one) for one in list_features()}


def _readme(folder: Path, feature: Feature) -> str:
    files = [path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
    lines = [f"# {feature.name}", "", *_wrapped(_doc(folder / "__init__.py", whole=True)), ""]
    adds = [f"- {what}: {_names(named)}" for what, named in _adds(feature) if named]
    if feature.on_node:
        adds.append("- what nodes run of it: `on_node`")
    if adds:
        lines += ["It adds:", "", *(line for one in adds for line in _wrapped(one, "  ")), ""]
    if feature.needs:
        needs = ", ".join(f"[{name}](../{name}/README.md)" for name in feature.needs)
        lines += [f"It needs {needs}.", ""]
    page = f"{_PAGES.get(feature.name, feature.name)}.md"
    if (ROOT / "docs" / page).exists():
        lines += [f"For users: [docs/{page}](../../../docs/{page}).", ""]
    if files:
        lines += ["| file | what |", "|---|---|", *(f"| `{path.name}` | {_doc(path)} |" for path in files), ""]
    return "\n".join(lines)


def _adds(feature: Feature) -> Iterable[tuple[str, list[str]]]:
    yield "verbs", [f"lab {verb}" for verb in feature.verbs]
    yield "options of", [f"lab {verb}" for verb in feature.options]
    yield "keys of scenarios", [name.replace("expect.", "expect: ") for name in feature.keys]
    yield "engines", list(feature.engines)
    yield "launchers", list(feature.launchers)
    yield "files of records", list(feature.record_files)
    yield (
        "findings",
        [str(kind) for kind in import_entry(feature.findings["kinds"])] if "kinds" in feature.findings else [],
    )
    yield "names to import from `lab`", [name for name in feature.exports if "." not in name]
    yield "members of `Cluster`", list(feature.cluster)


def _names(named: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in named)


def _doc(path: Path, *, whole: bool = False) -> str:
    """What a module says of itself: all of it, or its first paragraph."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join((text if whole else text.partition("\n\n")[0]).split()).replace("|", "\\|")


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, 110, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
