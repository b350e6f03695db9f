"""The table of operations: a new line in it goes all the way to the page, and the recorders keep to it."""

from __future__ import annotations

import ast
import base64
import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import lab.node.recorder
from lab.diagnosis.explain import explain_run
from lab.features.calls.pattern import parse_calls
from lab.features.calls.snapshot import first_departure
from lab.features.html.page import write_report
from lab.features.pictures.model import picture_of
from lab.features.pictures.text import picture_text
from lab.features.traffic.traffic import build_matrix, summarize_operations
from lab.features.values import expected as parts
from lab.features.values.expected import Part, Source
from lab.operations import OPERATIONS, Cut, Operation, Who
from lab.report.style import Style
from lab.trace.model import Call
from lab.trace.read import read_trace
from lab.trace.steps import Step, match_steps
from tests.diagnosis.facts import hang, stack
from tests.golden import golden
from tests.traces import TraceMaker

SHIFT = Operation("shift", colour="#123456", does="Every rank hands its tensor to the next one.")
SPREAD = Operation(
    "spread", "", Who.ROOT, Who.ALL, Cut.SLICES, "#654321", "{root} sends its i-th slice to the i-th rank."
)
RANKS = range(3)
RECORDER = Path(lab.node.recorder.__file__).parent
KNOWN = set(OPERATIONS)


def from_the_rank_before(step: Step, call: Call, index: int) -> tuple[Part, ...]:
    ranks = step.group.ranks
    return (Part(call.outputs[index].count, (Source(ranks[ranks.index(call.rank) - 1], index, 0),)),)


@pytest.fixture(autouse=True)
def new_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose results need a rule of their own, and one that its line in the table describes."""
    for row in (SHIFT, SPREAD):
        monkeypatch.setitem(OPERATIONS, row.name, row)
    monkeypatch.setitem(parts.RULES, "shift", from_the_rank_before)


def made(folder: Path, *, late: float = 0.0, absent: Sequence[int] = ()) -> TraceMaker:
    """A shift among three ranks, then a spread from rank 1, which may come late, or not at all."""
    maker = TraceMaker(folder / "run", 3)
    for rank in RANKS:
        maker.call(rank, "shift", 10 + rank, 20, [[rank, -rank]], [[(rank - 1) % 3, -((rank - 1) % 3)]], dtype="int64")
        if rank not in absent:
            given = [[5.0, 6.0, 7.0]] if rank == 1 else []
            begin = 30 + (late if rank == 1 else 0.0)
            end = None if absent and rank != 1 else 40 + late
            maker.call(rank, "spread", begin, end, given, [[5.0 + rank]] if end else None, root=1, at="train.py:9")
    return maker


def steps_of(maker: TraceMaker) -> list[Step]:
    return match_steps(read_trace(maker.record()))


def test_a_scenario_states_a_new_operation(tmp_path: Path) -> None:
    trace = read_trace(made(tmp_path).record())
    stated = [one for text in ("shift int64[2]", "spread float32[3] from 1") for one in parse_calls(text)]
    assert first_departure(stated, trace.ranks[1].calls, trace.groups) is None
    assert first_departure(stated[:1], trace.ranks[1].calls, trace.groups) is not None


def test_traffic_goes_where_a_new_operation_sends_it(tmp_path: Path) -> None:
    steps = steps_of(made(tmp_path))
    assert [step.title for step in steps] == ["shift #1", "spread #2"]
    assert build_matrix(steps[:1], 3) == [[0, 16, 0], [0, 0, 16], [16, 0, 0]]
    assert build_matrix(steps[1:], 3) == [[0, 0, 0], [4, 0, 4], [0, 0, 0]]
    assert {row.op: (row.size, row.busbw is None) for row in summarize_operations(steps)} == {
        "shift": (16, True), "spread": (12, False),
    }  # fmt: skip


def test_a_new_operation_is_explained(tmp_path: Path) -> None:
    (tmp_path / "late").mkdir()
    shift, spread = steps_of(made(tmp_path / "late", late=5.0))
    assert [shift.waited[rank] for rank in RANKS] == pytest.approx([0.002, 0.001, 0.0])
    assert [spread.waited[rank] for rank in RANKS] == pytest.approx([0.005, 0.0, 0.005])
    maker = made(tmp_path, absent=[1])
    hang(maker, *(stack(rank, 9, "spread" if rank != 1 else "") for rank in RANKS))
    sentences = [finding.sentence for finding in explain_run(maker.record()).findings]
    assert any(sentence.startswith(golden(1)) for sentence in sentences), sentences


def test_what_does_not_fit_in_a_new_operation_is_told(tmp_path: Path) -> None:
    maker = made(tmp_path)
    for rank in RANKS:
        maker.call(rank, "spread", 50, 60, [[1.0] * 3] if rank == 1 else [], [[1.0]], root=1 if rank else 2)
    clashes = [finding for finding in explain_run(maker.record()).findings if finding.kind == "root"]
    assert [(finding.ranks, finding.step) for finding in clashes] == [((0,), "spread #3")]
    told = picture_of(steps_of(maker)[2]).disagreement
    assert told == golden(1)


def test_a_new_operation_is_drawn_and_checked(tmp_path: Path) -> None:
    shift, spread = map(picture_of, steps_of(made(tmp_path)))
    assert (shift.check, spread.check) == ("right", "right")
    assert [shift.rank(rank).after[0].parts[0].origins for rank in RANKS] == [(2,), (0,), (1,)]
    assert [part.target for part in spread.rank(1).before[0].parts] == [0, 1, 2]
    style = Style(colour=False, width=80)
    assert SHIFT.does in picture_text(shift, style)
    assert golden(1) in picture_text(spread, style)


def test_a_new_operation_is_on_the_page(tmp_path: Path) -> None:
    html = write_report(made(tmp_path).record()).path.read_text()
    packed = re.search(r'id="data">([^<]*)<', html)
    assert packed is not None
    data = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    assert data["colours"] == {"shift": "#123456", "spread": "#654321"}
    assert {data["names"][index] for index in data["calls"]["op"]} == {"shift", "spread"}
    assert SHIFT.does in data["pictures"]["1"]
    assert golden(1) in html


def test_the_compiled_recorder_keeps_to_the_table() -> None:
    """What it writes of reduction and root it takes from PyTorch's options: by their type, `native_call.hpp`."""
    source = (RECORDER / "native_backend.hpp").read_text()
    methods = re.findall(r'\(([^()]*)\)\s+override \{[^"]*\{"(\w+)", (?:OpType::|k)(\w+)\}', source)
    assert {op for _, op, _ in methods} == KNOWN
    assert len(methods) == source.count("OpType::") + source.count(", kReduceScatterTensorCoalesced}")
    for parameters, op, kind in methods:
        row = OPERATIONS[op]
        given = "".join(re.findall(r"const (\w+)Options& options", parameters))
        reduces = given in ("Allreduce", "AllreduceCoalesced", "Reduce", "ReduceScatter")
        rooted = given in ("Broadcast", "Reduce", "Gather", "Scatter")
        assert (reduces, rooted) == (row.reduces, row.rooted), op
        assert kind in (row.c10d, "UNKNOWN", "COALESCED", "_ALLREDUCE_SPARSE", "RECVANYSOURCE") or row.c10d == (
            "REDUCE_SCATTER_TENSOR_COALESCED"
        ), op


_TABLES = ("_NAMED_ALIKE", "OPERATIONS")


def test_the_recorder_in_python_knows_the_operations_of_the_table() -> None:
    module = ast.parse((RECORDER / "python_group.py").read_text())
    tables = [one for one in module.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) in _TABLES]
    found: dict[str, Any] = {}
    exec(compile(ast.Module(body=tables, type_ignores=[]), "python_group.py", "exec"), found)  # torch may not be here
    assert set(found["OPERATIONS"]) == KNOWN
