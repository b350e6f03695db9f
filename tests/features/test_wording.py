"""What is said of each kind of finding: the golden file holds the sentences; other tests assert kinds and facts.

After a change of words, write the file anew with `python -m tests.features.test_wording`.
"""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

from lab.diagnosis.finding import FindingKind
from lab.feature import feature_findings
from lab.features.started.started import StartedKind
from tests.features.examples import EXAMPLES

pytestmark = pytest.mark.unit

GOLDEN = Path(__file__).with_name("wording.txt")
SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "result.schema.json").read_text(encoding="utf-8"))


def rendered() -> str:
    return "".join(f"{one.kind}\n    {one.sentence}\n" for one in EXAMPLES)


def test_every_kind_is_worded_as_the_golden_file_has_it() -> None:
    assert rendered() == GOLDEN.read_text(encoding="utf-8")


def test_there_is_an_example_of_every_kind() -> None:
    assert {one.kind for one in EXAMPLES} == {*FindingKind, *chain(*feature_findings("kinds"))}


def test_findings_are_as_the_published_schema_says() -> None:
    finding = {**SCHEMA["properties"]["findings"]["items"], "definitions": SCHEMA["definitions"]}
    for one in EXAMPLES:
        Draft7Validator(finding).validate(json.loads(json.dumps(one.to_json())))


def test_a_headline_ends_where_the_finding_says_and_not_at_a_full_stop_that_it_quotes() -> None:
    quoting = next(one for one in EXAMPLES if one.kind is StartedKind.THREAD)
    told = type(quoting)(raised=_raised("ValueError: no. Not now. Never"), others=(1,))
    assert "no. Not now. Never" in told.headline


def _raised(error: str) -> object:
    from lab.diagnosis.finding import ThreadError

    return ThreadError(error=error)


if __name__ == "__main__":
    GOLDEN.write_text(rendered(), encoding="utf-8")
