"""What the site of the docs takes from beside docs/: README.md and others, scenarios, a page for each lesson."""

from __future__ import annotations

import re
from pathlib import Path

from lesson_pages import FOLDER, lesson_pages  # which lies beside this file
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "mpi/README.md": "torch-mpi.md",
}
"""File in the checkout -> page of the site."""
FILES = ("scenarios/**/*.yaml", "scenarios/*.json", "scenarios/**/*.py", "LICENSE")
"""What pages link to and browsers show as it is."""


MENDED = {
    r'class="md-search" data-md-component="search" role="dialog"': r'\g<0> aria-label="Search"',
    r"<th([^>]*)></th>": r"<td\1></td>",
}
"""What axe-core finds in the pages of the theme and of Markdown -> what to write instead."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave out the page for addresses that do not exist: a site on disk cannot show it."""
    config.theme.static_templates.discard("404.html")
    return config


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Mend what keeps people from using a page."""
    for wrong, right in MENDED.items():
        output = re.sub(wrong, right, output)
    return output


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what does not lie in docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for pattern in FILES:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    for lesson in lesson_pages():
        files.append(File.generated(config, f"{FOLDER}/{lesson.name}.md", content=lesson.text))
        if lesson.picture:
            files.append(File.generated(config, f"{FOLDER}/{lesson.name}.svg", content=lesson.picture))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that are right in a checkout into those that are right in the site."""
    if page.file.src_uri in PAGES.values():
        markdown = re.sub(r"\]\(docs/", "](", markdown)
        for source, name in PAGES.items():
            markdown = markdown.replace(f"]({source})", f"]({name})")
        return markdown
    for source, name in PAGES.items():
        markdown = markdown.replace(f"](../{source})", f"]({name})")
    if page.file.src_uri == "scenarios.md":  # in a checkout it links to files, which have pages here
        return re.sub(r"\]\(\.\./scenarios/(?:\w+/)?(\w+)\.yaml", rf"]({FOLDER}/\1.md", markdown)
    return re.sub(r"\]\(\.\./(scenarios/|LICENSE)", r"](\1", markdown)
