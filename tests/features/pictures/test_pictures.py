"""Pictures of steps: whence every cell comes, whether it is right, and how terminal and SVG show it."""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from lab.features.pictures.model import Picture, picture_of, unrecorded_ranks
from lab.features.pictures.svg import svg_of
from lab.features.pictures.text import picture_text
from lab.features.timeline.svg import RANK_COLOURS, rank_colour
from lab.record.result import Expectation
from lab.report.style import Style
from lab.trace.read import read_trace
from lab.trace.steps import Step
from tests.golden import golden
from tests.report.example_steps import BROKEN, EXAMPLES, RANKS, message, one_step, steps_of
from tests.traces import TraceMaker

GOLDEN = Path(__file__).parent / "pictures"
SVG = "{http://www.w3.org/2000/svg}"
PLAIN = Style(colour=False, width=80)


def origins(picture: Picture, rank: int) -> list[tuple[int, ...]]:
    """Whence each element of a rank's outputs comes."""
    parts = [part for block in picture.rank(rank).after for part in block.parts]
    return [part.origins for part in parts for _ in range(part.count)]


def svg_words(svg: str) -> list[str]:
    """Everything that the picture says, in the order of drawing; it has to be well-formed XML."""
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def svg_boxes(step: Step) -> str:
    """What stands in boxes of the SVG."""
    return " ".join(svg_words(svg_of(picture_of(step))))


@pytest.mark.parametrize("name", [*EXAMPLES, *BROKEN])
def test_the_text_of_each_operation_is_the_one_on_file(name: str, tmp_path: Path) -> None:
    step = {**EXAMPLES, **BROKEN}[name](tmp_path)

    assert picture_text(picture_of(step, world_size=3), PLAIN) + "\n" == (GOLDEN / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "barrier"])
def test_right_outputs_are_found_right(name: str, tmp_path: Path) -> None:
    assert picture_of(EXAMPLES[name](tmp_path)).check == "right"


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "barrier"])
def test_one_wrong_element_is_found_in_every_operation(name: str, tmp_path: Path) -> None:
    step = EXAMPLES[name](tmp_path)
    call = step.calls[2 if name in ("reduce", "send") else 0]
    first, *others = call.outputs
    changed = dataclasses.replace(first, values=[-77, *(first.values or ())[1:]])
    call.outputs = (changed, *others)

    picture = picture_of(step)

    assert picture.check == "wrong"
    assert [rank.rank for rank in picture.ranks if rank.has_mismatch] == [call.rank]
    assert picture.rank(call.rank).after[0].mismatches == (0,)
    assert "✘-77" in picture_text(picture, PLAIN)
    assert "✘-77" in svg_boxes(step)


@pytest.mark.parametrize(
    ("name", "rank", "expected"),
    [
        ("broadcast", 2, [(1,)]),
        ("all_reduce", 1, [(0, 1, 2), (0, 1, 2)]),
        ("reduce", 2, [(0, 1, 2)]),
        ("reduce", 0, [()]),
        ("all_gather", 2, [(0,), (0,), (1,), (1,), (2,), (2,)]),
        ("all_gather_into_tensor", 0, [(0,), (0,), (1,), (1,), (2,), (2,)]),
        ("gather", 0, [(0,), (1,), (2,)]),
        ("gather", 1, []),
        ("scatter", 2, [(0,)]),
        ("reduce_scatter", 1, [(0, 1, 2)]),
        ("reduce_scatter_tensor", 1, [(0, 1, 2)]),
        ("all_to_all", 1, [(0,), (1,), (2,)]),
        ("all_to_all_single", 1, [(0,), (0,), (1,), (1,), (2,), (2,)]),
        ("send", 2, [(0,), (0,)]),
    ],
)
def test_the_origin_of_each_element_follows_from_the_operation(
    name: str, rank: int, expected: list[tuple[int, ...]], tmp_path: Path
) -> None:
    assert origins(picture_of(EXAMPLES[name](tmp_path)), rank) == expected


def test_origins_are_global_ranks_in_a_group_of_some(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 4)
    maker.group("1", [3, 1])
    for rank in (3, 1):
        maker.call(rank, "all_gather", 10, 20, [[rank]], [[3], [1]], group="1", dtype="int64")
    picture = picture_of(steps_of(maker)[0])

    assert origins(picture, 1) == [(3,), (1,)]
    assert picture.check == "right"


def test_sums_in_another_order_are_right_and_other_sums_are_not(tmp_path: Path) -> None:
    values = [1e8, 1.0, -1e8]  # float32: 0.0 in this order, 1.0 in another
    step = one_step(tmp_path, "all_reduce", lambda r: [[values[r]]], lambda _: [[0.0]], red="SUM")
    assert picture_of(step).check == "right"

    step.calls[1].outputs = (dataclasses.replace(step.calls[1].outputs[0], values=[200.0]),)
    assert picture_of(step).rank(1).after[0].mismatches == (0,)


def test_calls_that_do_not_fit_are_not_compared(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 2)
    maker.call(0, "all_reduce", 10, 20, [[1.0]], [[2.0]], red="SUM")
    maker.call(1, "broadcast", 10, 20, [[1.0, 2.0]], [[2.0, 2.0]], root=0)
    picture = picture_of(steps_of(maker)[0])

    assert picture.check == "unchecked"
    assert picture.disagreement == golden(1)
    assert picture.disagreement[1:] in picture_text(picture, PLAIN)


def test_a_rank_that_never_entered_and_one_not_on_record_are_told_apart(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 3)
    maker.line(1, "cut", 5, why="disk full")
    maker.call(0, "all_reduce", 10, None, [[1.0]], red="SUM")
    record = maker.record()
    trace = read_trace(record)
    picture = picture_of(steps_of(maker)[0], unrecorded=unrecorded_ranks(trace))

    assert [rank.state for rank in picture.ranks] == ["unfinished", "unrecorded", "missing"]
    text = picture_text(picture, PLAIN)
    assert golden(1) in text
    assert "Rank 2 never entered." in text


def test_large_tensors_are_blocks_with_their_summary(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 2)
    summary = {"n": 9000, "norm": 12.5, "min": -1.0, "max": 2.0, "hash": "aa"}
    for rank in range(2):
        fields = {"in": [["float32", [90, 100]]], "iv": None, "is": [summary], "root": 0, "ib": 36000}
        maker.call(rank, "broadcast", 10, None, **fields)
        maker.line(rank, "end", 20, i=1, os=[{**summary, "hash": "aa" if rank == 0 else "bb"}])
    step = steps_of(maker)[0]
    picture = picture_of(step)
    text = picture_text(picture, PLAIN)

    assert "9,000 elements" in text
    assert "float32[90, 100]" in text
    assert "norm 12.5" in text
    assert "from -1.0 to 2.0" in text
    assert golden(1) in text
    assert [rank.has_mismatch for rank in picture.ranks] == [False, True]
    assert "9,000 elements" in svg_boxes(step)


@pytest.mark.parametrize(("hashes", "check"), [(("aa", "aa"), "unchecked"), (("aa", "bb"), "wrong")])
def test_equal_samples_prove_nothing_and_others_do(hashes: tuple[str, str], check: str, tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 2)
    summary = {"n": 10**7, "norm": 12.5, "min": -1.0, "max": 2.0, "sampled": 65536}
    for rank in range(2):
        fields = {"in": [["float32", [10**7]]], "iv": None, "is": [{**summary, "hash": hashes[0]}], "root": 0}
        maker.call(rank, "broadcast", 10, None, **fields)
        maker.line(rank, "end", 20, i=1, os=[{**summary, "hash": hashes[rank]}])
    picture = picture_of(steps_of(maker)[0])

    assert picture.check == check
    assert max(map(len, picture_text(picture, Style(colour=False, width=60)).splitlines())) <= 60


def test_pickled_objects_are_called_so(tmp_path: Path) -> None:
    step = one_step(
        tmp_path, "all_gather", lambda r: [[r, r]], lambda _: [[i, i] for i in RANKS],
        dtype="uint8", via="all_gather_object",
    )  # fmt: skip

    assert "pickle, 2 B" in picture_text(picture_of(step), PLAIN)
    assert "pickle, 2 B" in svg_words(svg_of(picture_of(step)))


def test_unmet_notes_of_the_ranks_are_mentioned(tmp_path: Path) -> None:
    step = EXAMPLES["all_reduce"](tmp_path)
    expectations = [
        Expectation(rank=1, what="note total", expected=6.0, got=5.0, met=False),
        Expectation(rank=2, what="note total", expected=6.0, got=6.0, met=True),
        Expectation(rank=0, what="exit", expected=0, got=1, met=False),
    ]
    picture = picture_of(step, expectations)

    assert picture.unmet == (golden(1),)
    assert picture.unmet[0] in picture_text(picture, Style(colour=False, width=120))
    assert picture.unmet[0] in " ".join(svg_words(svg_of(picture_of(step, expectations))))


@pytest.mark.sample(9)  # one layout for all widths
@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("world_size", [2, 8, 40])
@pytest.mark.parametrize("op", ["all_gather", "all_to_all", "all_reduce"])
def test_text_fits_the_terminal(op: str, world_size: int, width: int, tmp_path: Path) -> None:
    many = [[-0.123456 * i, 1e9] for i in range(world_size)]
    before = {"all_gather": many[:1], "all_to_all": many, "all_reduce": [[1.5] * 100]}[op]
    after = before if op == "all_reduce" else many
    step = one_step(tmp_path, op, lambda _: before, lambda _: after, world_size=world_size, red="SUM")

    text = picture_text(picture_of(step), Style(colour=False, width=width))

    assert max(len(line) for line in text.splitlines()) <= width


def test_colours_change_nothing_but_colours(tmp_path: Path) -> None:
    picture = picture_of(BROKEN["wrong_element"](tmp_path))
    painted = picture_text(picture, Style(colour=True, width=80))

    assert "\x1b[31;1m✘2.0\x1b[0m" in painted
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", painted)
    assert [line.rstrip() for line in stripped.splitlines()] == picture_text(picture, PLAIN).splitlines()


@pytest.mark.parametrize("name", [*EXAMPLES, *BROKEN])
def test_svg_is_well_formed_described_and_holds_every_value(name: str, tmp_path: Path) -> None:
    step = {**EXAMPLES, **BROKEN}[name](tmp_path)
    svg = svg_of(picture_of(step, world_size=3))
    root = ET.fromstring(svg)
    picture = picture_of(step)

    assert root.find(f"{SVG}title").text == f"Step 1: {step.title}"
    assert root.find(f"{SVG}desc").text
    assert float(root.get("viewBox").split()[2]) <= 540
    assert "id=" not in svg
    said = svg_words(svg)
    before = [value for rank in picture.ranks for block in rank.before for value in block.values]
    after = [value for rank in picture.ranks for block in rank.after for value in block.values or ()]
    numbers = [float(word.lstrip("✘")) for word in said if re.fullmatch(r"✘?-?[\d.]+", word)]
    assert sorted(numbers) == sorted([*before, *after])


def test_svg_draws_a_line_from_each_input_to_each_output_it_is_part_of(tmp_path: Path) -> None:
    lines = {}
    for name in ("broadcast", "all_reduce", "scatter", "gather", "send"):
        (tmp_path / name).mkdir()
        root = ET.fromstring(svg_of(picture_of(EXAMPLES[name](tmp_path / name), world_size=3)))
        lines[name] = [path.get("stroke") for path in root.iter(f"{SVG}path") if path.get("stroke", "").startswith("#")]
    blue, orange, green = RANK_COLOURS[:3]

    assert lines["broadcast"] == [orange] * 3
    assert sorted(lines["all_reduce"]) == sorted([blue, orange, green] * 3)
    assert lines["scatter"] == [blue] * 3
    assert lines["gather"] == [blue, orange, green]
    assert lines["send"] == [blue]


def test_a_picture_is_plain_data(tmp_path: Path) -> None:
    data = json.loads(json.dumps(picture_of(BROKEN["wrong_element"](tmp_path)).to_json()))

    assert data["check"] == "wrong"
    assert data["ranks"][0]["after"][0]["expected"] == [3.0, 9.0]
    assert data["ranks"][0]["after"][0]["wrong"] == [1]


def test_a_message_to_itself_is_drawn(tmp_path: Path) -> None:
    step = message(tmp_path)
    step.calls = {0: step.calls[0]}
    step.calls[0].peer = 0

    assert "rank 0" in picture_text(picture_of(step), PLAIN)
    assert svg_words(svg_of(picture_of(step)))


@pytest.mark.parametrize("world_size", [1, 12, 13, 48])
def test_neighbouring_ranks_have_colours_of_their_own(world_size: int) -> None:
    colours = [rank_colour(rank, world_size) for rank in range(world_size)]

    assert len(set(colours)) == world_size
    assert all(re.fullmatch(r"#[0-9a-fA-F]{6}", colour) for colour in colours)


def test_a_receive_from_any_rank_that_got_nothing_is_drawn(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 2)
    maker.call(1, "recv", 10, None, [], [[1.0]], peer=-1)
    step = steps_of(maker)[0]

    assert golden(1) in picture_text(picture_of(step), PLAIN)
    assert "never finished" in svg_words(svg_of(picture_of(step)))


ODD = ["nan", "inf", 1e-30, -0.0]


def test_values_that_matter_are_drawn_where_there_is_room(tmp_path: Path) -> None:
    step = one_step(tmp_path, "broadcast", lambda _: [ODD], lambda _: [ODD], root=0)

    for words in (svg_words(svg_of(picture_of(step))), picture_text(picture_of(step), PLAIN).split()):
        assert " ".join(words).count("nan inf 1e-30 -0.0") == 6
        assert "…" not in words


def test_of_many_values_those_are_drawn_that_say_most_and_the_same_ones_everywhere(tmp_path: Path) -> None:
    def values(rank: int, factor: float = 1.0) -> list[Any]:
        numbers: list[Any] = [factor * (1 + number / 7) for number in range(200)]
        numbers[50] = "nan" if rank == 1 or factor > 1 else numbers[50]
        numbers[77] = -0.0
        return numbers

    step = one_step(tmp_path, "all_reduce", lambda r: [values(r)], lambda r: [values(1, 3.0)], red="SUM")
    text = picture_text(picture_of(step), Style(colour=False, width=90))
    before, after = text.split("after:")

    assert before.count("-0.0") == 3
    assert before.count("8.143") == 2  # where rank 1 has nan
    assert (before.count("nan"), after.count("nan")) == (1, 3)
    boxes = svg_boxes(step)
    assert (boxes.count("nan"), boxes.count("-0.0")) == (4, 6)


def test_every_value_on_record_is_told_where_the_pointer_rests(tmp_path: Path) -> None:
    given = [[number / 3 for number in range(256)]]
    step = one_step(tmp_path, "broadcast", lambda _: given, lambda _: given, root=0)
    titles = [title.text or "" for title in ET.fromstring(svg_of(picture_of(step))).iter(f"{SVG}title")]

    assert titles[0] == "Step 1: broadcast #1"
    assert titles[1:] == [f"float32[256]: {' '.join(map(repr, given[0]))}"] * 6
    titles = [
        t.text or ""
        for t in ET.fromstring(svg_of(picture_of(BROKEN["wrong_element"](tmp_path / "b")))).iter(f"{SVG}title")
    ]
    assert golden(1) in titles


def test_what_ranks_got_though_another_brought_a_tensor_of_another_size_is_compared(tmp_path: Path) -> None:
    step = one_step(
        tmp_path, "all_reduce", lambda r: [[1.0] * (3 if r == 1 else 2)],
        lambda r: None if r == 1 else [[2.0 if r == 0 else 3.0, 3.0]], red="SUM",
    )  # fmt: skip
    picture = picture_of(step)

    assert picture.check == "wrong"
    assert [rank.has_mismatch for rank in picture.ranks] == [True, False, False]
    assert "✘2.0" in svg_boxes(step)
    text = picture_text(picture, PLAIN)
    assert golden(1) in text
    assert golden(2) in text


def test_a_right_result_beside_a_tensor_of_another_size_is_not_called_right(tmp_path: Path) -> None:
    step = one_step(
        tmp_path, "all_reduce", lambda r: [[1.0] * (3 if r == 1 else 2)],
        lambda r: None if r == 1 else [[3.0, 3.0]], red="SUM",
    )  # fmt: skip

    assert picture_of(step).check == "unchecked"


def test_a_sum_of_gradients_that_were_divided_before_is_called_a_mean(tmp_path: Path) -> None:
    step = EXAMPLES["all_reduce"](tmp_path)
    assert not picture_of(step).averages
    for call in step.calls.values():
        call.divided = True
    picture = picture_of(step)

    words = "already divided these gradients by the world size, so their sum is the mean."
    assert words in " ".join(picture_text(picture, PLAIN).split())
    assert golden(1) in picture_text(picture, PLAIN)
    assert words in " ".join(svg_words(svg_of(picture, heading=False)))


def test_what_was_seen_too_late_is_neither_drawn_nor_called_wrong(tmp_path: Path) -> None:
    maker = TraceMaker(tmp_path / "run", 2)
    for rank in range(2):  # by the backward of DDP, which waits unseen; rank 1 has gone on when its result is seen
        facts = {"red": "SUM", "via": "backward", "async": True, "late": 1}
        maker.call(rank, "all_reduce", 10, 20, [[1.5]], [[3.0 + 7 * rank]], **facts)
        maker.line(rank, "wait", 30, e=0, at="train.py:9")  # for something else
        maker.line(rank, "wait", 40, e=1)
    picture = picture_of(steps_of(maker)[0])

    assert picture.check == "partly"
    assert [rank.has_mismatch for rank in picture.ranks] == [False, False]
    text = picture_text(picture, PLAIN)
    assert "read too late" in text
    assert "10.0" not in text
    assert "3.0" in text


def test_a_narrow_terminal_leaves_out_what_is_ordinary_first(tmp_path: Path) -> None:
    odd: list[Any] = [*range(1000, 1020), "nan", *range(1020, 1040), "-inf", -0.0, *range(1040, 1060)]
    values = [[value if isinstance(value, str) else float(value) for value in odd]]
    step = one_step(tmp_path, "broadcast", lambda _: values, lambda _: values, root=0)
    text = picture_text(picture_of(step), Style(colour=False, width=64))

    assert [text.count(word) for word in ("nan", "-inf", "-0.0")] == [6, 6, 6]
    assert max(map(len, text.splitlines())) <= 64
