"""The schema for editors and the reference for people say what the declared keys say."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from lab.errors import ScenarioError, UsageError
from lab.feature import all_entries
from lab.record.layout import FILES, render_readme
from lab.spec.kinds import parse_duration, parse_size
from lab.spec.load import load_scenario, schema_file

ROOT = Path(__file__).parents[1]
REFERENCE = (ROOT / "docs" / "scenario-reference.md").read_text(encoding="utf-8")
SCHEMA = schema_file().read_text(encoding="utf-8")
TOP = json.loads(SCHEMA)["properties"]


def test_the_schema_and_the_reference_are_as_the_keys_are_declared() -> None:
    made = runpy.run_path(str(ROOT / "dev" / "make_reference.py"))
    assert made["schema"]() == SCHEMA, "run dev/reference"
    assert made["reference"](REFERENCE) == REFERENCE, "run dev/reference"


def test_the_schema_of_results_is_as_they_are_declared() -> None:
    docs_of = runpy.run_path(str(ROOT / "dev" / "make_reference.py"))["docstrings"]
    made = runpy.run_path(str(ROOT / "dev" / "result_schema.py"))["result_schema"](docs_of)
    schema = (ROOT / "docs" / "result.schema.json").read_text(encoding="utf-8")
    assert made == schema, "run dev/reference"
    Draft7Validator.check_schema(json.loads(schema))


def test_the_readme_of_each_feature_says_what_it_adds() -> None:
    made = runpy.run_path(str(ROOT / "dev" / "feature_readmes.py"))["readmes"]()
    assert {path: path.read_text(encoding="utf-8") for path in made} == made, "run dev/reference"


def test_the_page_on_ci_shows_the_files_that_are_written() -> None:
    made = runpy.run_path(str(ROOT / "dev" / "make_reference.py"))
    page = (ROOT / "docs" / "ci-reference.md").read_text(encoding="utf-8")
    assert made["ci"](page) == page, "run dev/reference"


def test_the_docs_and_every_record_say_the_same_of_its_files() -> None:
    made = runpy.run_path(str(ROOT / "dev" / "make_reference.py"))
    page = (ROOT / "docs" / "record.md").read_text(encoding="utf-8")
    assert made["record"](page) == page, "run dev/reference"
    for name, what in FILES.items():
        assert f"\n{name}\n    {what}\n" in render_readme()
    for name, what in {**FILES, **all_entries("record_files")}.items():
        assert f"\n| `{name}` | {what} |\n" in page


def test_the_schema_describes_every_key_and_allows_no_other() -> None:
    def sections(of: dict[str, Any]) -> list[dict[str, Any]]:
        return [of, *(deeper for one in of["properties"].values() if "properties" in one for deeper in sections(one))]

    found = sections(json.loads(SCHEMA))
    assert len(found) == 7
    assert all(section["additionalProperties"] is False for section in found)
    assert all(len(key["description"]) > 10 for section in found for key in section["properties"].values())


@pytest.mark.parametrize(
    "text", ["60s", "1.5 h", ".5ms", "1e3", "5x", "1m30s", "-1s", "", "1GiB", "100k", "2tb", "7B", "1iB"]
)
def test_the_schema_and_the_loader_read_the_same_quantities(text: str) -> None:
    for schema, parse in ((TOP["timeout"], parse_duration), (TOP["resources"]["properties"]["memory"], parse_size)):
        try:
            parse(text)
            allowed = True
        except UsageError:
            allowed = False
        assert bool(re.search(schema["pattern"], text)) is allowed


def test_every_scenario_of_the_library_satisfies_the_schema() -> None:
    validator = Draft7Validator(json.loads(SCHEMA))
    files = sorted((ROOT / "scenarios").rglob("*.yaml"))
    assert len(files) > 50
    for file in files:
        text = re.sub(
            r"\b(\d)e-", r"\1.0e-", file.read_text(encoding="utf-8")
        )  # a number in YAML 1.2, as editors read it
        said = json.loads(json.dumps(yaml.safe_load(text), default=str))
        assert [error.message for error in validator.iter_errors(said)] == [], file


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"nodes": 2},
        {"script": "a.py", "nods": 2},
        {"script": "a.py", "nodes": 0},
        {"script": "x/../a.py"},
        {"script": "a.py", "predict": {"ask": "x", "choices": ["a", "b"]}},
        {"script": "a.py", "predict": {"ask": "x", "answer": {"rank": 1}}},
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(said: dict[str, Any], tmp_path: Path) -> None:
    assert not Draft7Validator(json.loads(SCHEMA)).is_valid(said)
    (tmp_path / "a.py").touch()
    (tmp_path / "a.yaml").write_text(json.dumps(said))
    with pytest.raises(ScenarioError):
        load_scenario(tmp_path / "a.yaml")


def test_every_example_of_the_reference_loads(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    folder = tmp_path / "scenarios"
    folder.mkdir()
    for script in ("train.py", "scatter.py", "helper.py"):
        (folder / script).write_text("")
    (folder / "verify.py").write_text("def sums_agree(results): ...\n")
    at_top, in_expect = REFERENCE.split("## expect\n")
    at_top, faults, after = re.split("^## (?:Faults|Questions)\n", at_top, flags=re.MULTILINE)
    examples = [
        f"script: train.py\n{example}" for example in examples_of(at_top + after) if not example.startswith("script")
    ]
    examples += [f"script: train.py\nfaults: [{{{whole_fault(example)}}}]" for example in examples_of(faults)]
    examples += [f"script: train.py\nexpect:\n  {example}" for example in examples_of(in_expect)]
    blocks = re.findall(r"```yaml\n(.*?)```", REFERENCE, re.DOTALL)
    examples += [block if "script:" in block else f"script: train.py\n{block}" for block in blocks]
    assert len(examples) >= 25
    for example in examples:
        (folder / "example.yaml").write_text(example)
        assert load_scenario(folder / "example.yaml").source == folder / "example.yaml"


def whole_fault(example: str) -> str:
    """A fault with this key."""
    if example.startswith("when:"):
        return f"kill: node2, {example}"
    kind = "kill: node2, " if example.startswith(("for:", "until:")) else ""
    return f"{kind}{example}, when: {{rank: 1, op: all_reduce}}"


def examples_of(text: str) -> list[str]:
    return re.findall(r"`([^`]+)` \|$", text, re.MULTILINE)
