"""What a script leaves for the check of its scenario: the check ends with a sentence, whatever that is."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.diagnosis.facts import read_facts
from lab.features.grade.grades import explain_forfeit
from lab.record.read import Record
from lab.spec.scenario import Expect
from tests.engines.conftest import scenario_of
from tests.golden import golden

HERE = Path(__file__).parent / "scripts"
MIB = 1 << 20
pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("checks"), pytest.mark.half]

REFUSED = {
    "pipe": "answer.json is not among the files of the check: it is a pipe",
    "socket": "answer.json is not among the files of the check: it is a socket",
    "folder": "answer.json does not exist",
    "link to a device": "answer.json is not among the files of the check: it is a symbolic link",
    "link to a file of the check": "answer.json is not among the files of the check: it is a symbolic link",
    "link in a folder": "answer.json is not among the files of the check: it is a symbolic link",
    "terabyte": "answer.json is not among the files of the check: it is larger than 32 MiB",
    "too large": "answer.json is not among the files of the check: it is larger than 32 MiB",
    "large": "answer.json is larger than 16,777,216 bytes",
    "name in capitals": "answer.json does not exist",
    "nested": "answer.json is nested more than 100 deep",
    "no text": "answer.json is not text in UTF-8: byte 9 is 0xff",
}
"""What the safe check says of each."""
TEXTS = {
    "nested": "is nested more than 100 deep",
    "nested mappings": "is nested more than 100 deep",
    "nested after a string": "is nested more than 100 deep",
    "number of a million digits": "holds a number of 1,000,000 digits; 400 are allowed",
    "number beyond every float": "has a number that no float can hold: 1e999",
    "no number": "has NaN, which is not a number in JSON",
    "million values": "has more than 1,000,000 values",
    "million lists": "has more than 1,000,000 values",
    "half a character": "has an invalid character (a lone surrogate)",
    "no JSON": "is not JSON: Expecting value at line 1, column 1",
    "nothing": "is not JSON: Expecting value at line 1, column 1",
    "escapes": "is not JSON: Invalid control character at at line 1, column 10",
    "quotes": "has more than 1,000,000 values",
    "escaped quotes": "is not JSON: Unterminated string starting at at line 1, column 1",
    "backslashes": "is not JSON: Unterminated string starting at at line 1, column 1",
    "right": "",
    "right, twice": "",
    "right, with a mark": "",
}
"""What the safe check says of each text, all of which one run leaves; nothing of those that are right."""
PASSED = {
    "right": "",
    "right, for nobody to read": "",
    "right, far down": "it is more than 20 folders deep",
    "right, among thousands": "files, of which only 2,000 are copied",
    "right, among odd names": "it is a pipe",
    "right, beside gigabytes": "all files together are larger than 64 MiB",
    "right, beside a pipe": "it is a pipe",
}
"""What is right all the same, and what of it the check is not given."""


class Bench:
    """A strict cluster, and what came of a run on it."""

    def __init__(self, runs: Path) -> None:
        name = f"lab-test-{uuid.uuid4().hex[:8]}"
        self.cluster = Cluster(name=name, engine="docker", nodes=1, strict=True, memory_bytes=1024 * MIB)
        self.runs = runs

    def check(self, function: str, how: str) -> tuple[Result, str]:
        """Run, and say what the check came to."""
        expect = Expect(check=f"checks.py:{function}")
        began = time.monotonic()
        result = self.cluster.run(
            scenario_of(HERE / "leaves_for_check.py", how, expect=expect, timeout_s=50.0), runs=self.runs
        )
        assert time.monotonic() - began < 50
        checks = [one for one in result.expectations if one.what.startswith("check")]
        return result, str(checks[0].got) if checks else f"no check: {result.reason}"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, person: None) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("runs"))
    with bench.cluster:
        yield bench


def test_a_check_that_reads_safely_fails_with_a_sentence_whatever_was_left(bench: Bench) -> None:
    wrong = {}
    for how, told in REFUSED.items():
        result, got = bench.check("safely", how)
        if result.verdict != "failed" or not got.startswith(f"lab.OutputError: {told}"):
            wrong[how] = f"{result.verdict}: {got[:300]}"
    assert wrong == {}


def test_every_text_is_read_or_refused_with_a_sentence(bench: Bench) -> None:
    result, got = bench.check("each_safely", "every text")
    assert got.startswith("it passed"), got
    assert result.path is not None
    said = dict(json.loads(line) for line in (result.path / "logs" / "check.log").read_text().splitlines())
    expected = {f"{name}.json": f"{name}.json {told}" if told else "it passed" for name, told in TEXTS.items()}
    assert said.keys() == expected.keys()
    assert {name: text for name, text in said.items() if not text.startswith(expected[name])} == {}


def test_an_answer_that_is_right_passes_whatever_lies_beside_it(bench: Bench) -> None:
    wrong = {}
    for how, told in PASSED.items():
        result, got = bench.check("safely", how)
        assert result.path is not None
        staged = read_facts(Record(path=result.path)).staged
        reasons = [*staged.left_out.values()] if staged is not None else []
        if result.verdict != "passed" or (not any(told in why for why in reasons) if told else reasons):
            wrong[how] = f"{result.verdict}: {got[:300]}: {reasons[:5]}"
    assert wrong == {}


@pytest.mark.parametrize("how", ["pipe", "socket", "link to a device", "terabyte", "right, among odd names"])
def test_a_check_that_reads_all_that_there_is_ends(bench: Bench, how: str) -> None:
    _, got = bench.check("everything", how)

    assert got.startswith(("it passed", "AssertionError")), got
    _, got = bench.check("naively", how)
    assert got.startswith(("it passed", "FileNotFoundError")), got


@pytest.mark.parametrize(
    ("function", "how", "met"),
    [
        ("as_bytes", "right", "it passed"),
        ("of_a_path", "right", "it passed"),
        ("changes", "right", "it passed"),
        ("naively", "nested", "lab.CheckError: naively ended with a RecursionError; lab.read_output reads"),
        ("has_too_little_memory", "right", "lab.CheckError: has_too_little_memory ended with a MemoryError"),
        ("takes_all_memory", "right", "killed: out of memory"),
        ("crashes", "right", "killed by SIGSEGV"),
        ("leaves", "right", "SystemExit: 3"),
        ("starts_processes_without_end", "right", "BlockingIOError: [Errno 11] Resource temporarily unavailable"),
    ],
)
def test_what_a_check_does_itself_costs_its_own_points_and_no_others(
    bench: Bench, function: str, how: str, met: str
) -> None:
    result, got = bench.check(function, how)

    assert got.startswith(met), got
    assert result.path is not None
    facts = read_facts(Record(path=result.path))
    assert explain_forfeit(facts) == "", facts.limits
    assert [rank.exit_code for rank in result.ranks] == [0]


@pytest.mark.long
def test_notes_that_take_twenty_times_their_size_are_a_limit(bench: Bench) -> None:
    script = HERE.parent / "submissions" / "notes_millions_of_lists.py"

    result = bench.cluster.run(scenario_of(script, timeout_s=50.0), runs=bench.runs)

    assert golden(1) in result.reason
    assert sum(len(value) for value in result.ranks[0].notes.values()) * 3 < 4 * MIB


def test_the_reason_says_what_a_check_was_not_given(bench: Bench) -> None:
    result, _ = bench.check("naively", "pipe")

    assert golden(1) in result.reason, result.reason
