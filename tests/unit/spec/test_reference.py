"""The schema for editors and the reference for people say what the loader does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lab.errors import UsageError
from lab.spec.environment import LAB_PREFIXES, LAB_VARIABLES, SETTABLE
from lab.spec.expect import VERDICTS
from lab.spec.expressions import FUNCTIONS, VARIABLES
from lab.spec.load import MAX_NODES, MAX_TIMEOUT_S, MIN_MEMORY_BYTES, load_scenario
from lab.spec.scenario import BACKENDS, MAX_TRACE_VALUES, Expect, Scenario
from lab.spec.section import EXPECT_KEYS, PLANNED_KEYS, RESOURCES_KEYS, SCENARIO_KEYS, TOLERANCE_KEYS, TRACE_KEYS
from lab.spec.units import parse_duration, parse_size

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = (DOCS / "scenario-reference.md").read_text(encoding="utf-8")
SCHEMA = json.loads((DOCS / "scenario.schema.json").read_text(encoding="utf-8"))
TOP = SCHEMA["properties"]
EXPECT = TOP["expect"]["properties"]


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        (SCHEMA, SCENARIO_KEYS),
        (TOP["resources"], RESOURCES_KEYS),
        (TOP["trace"], TRACE_KEYS),
        (TOP["expect"], EXPECT_KEYS),
        (EXPECT["tolerance"], TOLERANCE_KEYS),
    ],
    ids=["scenario", "resources", "trace", "expect", "tolerance"],
)
def test_the_schema_and_the_loader_know_the_same_keys(section: dict[str, Any], keys: tuple[str, ...]) -> None:
    assert sorted(section["properties"]) == sorted(keys)
    assert section["additionalProperties"] is False


def test_the_schema_and_the_loader_allow_the_same_words_and_numbers() -> None:
    assert TOP["backend"]["enum"] == list(BACKENDS)
    assert EXPECT["verdict"]["enum"] == list(VERDICTS)
    assert TOP["trace"]["properties"]["values"]["maximum"] == MAX_TRACE_VALUES
    assert SCHEMA["definitions"]["count"]["maximum"] == MAX_NODES
    assert TOP["timeout"]["maximum"] == MAX_TIMEOUT_S
    assert TOP["resources"]["properties"]["memory"]["minimum"] == MIN_MEMORY_BYTES
    prefixes, names = TOP["env"]["propertyNames"]["not"]["anyOf"]
    assert prefixes["pattern"] == f"^(?!({'|'.join(SETTABLE)})$)({'|'.join(LAB_PREFIXES)})"
    assert set(names["enum"]) == LAB_VARIABLES


def test_the_schema_states_the_defaults_of_the_data() -> None:
    assert TOP["backend"]["default"] == Scenario.backend
    assert TOP["timeout"]["default"] == f"{Scenario.timeout_s:g}s"
    assert TOP["cold"]["default"] == Scenario.cold
    assert EXPECT["verdict"]["default"] == Expect.verdict
    assert EXPECT["tolerance"]["properties"]["relative"]["default"] == Expect.relative_tolerance
    assert EXPECT["tolerance"]["properties"]["absolute"]["default"] == Expect.absolute_tolerance


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


def test_every_key_of_the_schema_is_described() -> None:
    def undescribed(section: dict[str, Any]) -> list[str]:
        found = [key for key, value in section.get("properties", {}).items() if "description" not in value]
        return found + [key for value in section.get("properties", {}).values() for key in undescribed(value)]

    assert undescribed(SCHEMA) == []


def test_the_reference_has_a_row_for_every_key_and_for_no_other() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \|", REFERENCE, re.MULTILINE)
    nested = {"resources", "tolerance"}
    expected = [*(set(SCENARIO_KEYS) - nested), *(set(EXPECT_KEYS) - nested)]
    expected += [f"trace.{key}" for key in TRACE_KEYS]
    expected += [f"resources.{key}" for key in RESOURCES_KEYS] + [f"tolerance.{key}" for key in TOLERANCE_KEYS]
    assert sorted(rows) == sorted(expected)


def test_the_reference_names_what_is_planned_what_is_taken_and_what_expressions_may_use() -> None:
    for word in (*PLANNED_KEYS, *LAB_VARIABLES, *LAB_PREFIXES, *VARIABLES, *FUNCTIONS):
        assert f"`{word}`" in REFERENCE


def test_every_example_of_the_reference_loads(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    folder = tmp_path / "scenarios"
    folder.mkdir()
    for script in ("train.py", "scatter.py"):
        (folder / script).write_text("")
    (folder / "verify.py").write_text("def sums_agree(results): ...\n")
    at_top, in_expect = REFERENCE.split("## expect\n")
    examples = [f"script: train.py\n{example}" for example in examples_of(at_top) if not example.startswith("script")]
    examples += [f"script: train.py\nexpect:\n  {example}" for example in examples_of(in_expect)]
    blocks = re.findall(r"```yaml\n(.*?)```", REFERENCE, re.DOTALL)
    examples += [block if "script:" in block else f"script: train.py\n{block}" for block in blocks]
    assert len(examples) >= 25
    for example in examples:
        (folder / "example.yaml").write_text(example)
        assert load_scenario(folder / "example.yaml").source == folder / "example.yaml"


def examples_of(text: str) -> list[str]:
    return re.findall(r"`([^`]+)` \|$", text, re.MULTILINE)
