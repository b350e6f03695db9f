"""Which strings are arithmetic, what they come to, and what they may not do."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import ScenarioError
from lab.spec.expressions import (
    FUNCTIONS,
    NOTHING_EXPECTED,
    VARIABLES,
    RankVariables,
    evaluate_expected,
    is_expression,
    rank_variables,
)

RANK_5_OF_8 = RankVariables.of(5, nnodes=4, nproc_per_node=2)


def test_ranks_are_node_major() -> None:
    assert rank_variables(4, 2)[5] == RankVariables(
        rank=5, local_rank=1, node_rank=2, world_size=8, nnodes=4, nproc_per_node=2
    )
    assert list(rank_variables(2, 3)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10.0 * rank", 50.0),
        ("rank", 5),
        (" rank\n", 5),
        ("world_size * (world_size - 1) / 2", 28.0),
        ("[rank, local_rank, node_rank, world_size, nnodes, nproc_per_node]", [5, 1, 2, 8, 4, 2]),
        ("(rank, rank + 1)", [5, 6]),
        ("[i * rank for i in range(3)]", [0, 5, 10]),
        ("[[i, j] for i in range(2) for j in range(2) if i != j and rank]", [[0, 1], [1, 0]]),
        ("[a + b for a, b in [(rank, 1)]]", [6]),
        ("sum(range(world_size))", 28),
        ("sum(i * i for i in range(world_size))", 140),
        ("min(rank, 3) + max(rank, 6) + abs(-rank) + len([rank])", 15),
        ("round(rank / 3, 2)", 1.67),
        ("int(rank / 2) + float(rank)", 7.0),
        ("list(range(rank))[1:3]", [1, 2]),
        ("'even' if rank % 2 == 0 else 'odd'", "odd"),
        ("rank == 5", True),
        ("0 < rank < 3", False),
        ("rank in [1, 5] and not rank == 2", True),
        ("(rank + 1) % world_size", 6),
        ("rank ^ 1", 4),
        ("2 ** rank + (1 << rank)", 64),
        ("f'hello from {rank}'", "hello from 5"),
        ("'node' + str(node_rank)", "node2"),
        ("[0.0] * rank", [0.0] * 5),
        ("rank * 1j", [0.0, 5.0]),
        ("float('nan') if rank == 0 else None", None),
        ("10 ** -rank", 1e-5),
    ],
)
def test_an_expression_comes_to_its_value(text: str, value: Any) -> None:
    assert is_expression(text)
    assert evaluate_expected(text, RANK_5_OF_8) == value


@pytest.mark.parametrize(
    "text",
    [
        "gloo",
        "hello world",
        "all-reduce",
        "node-1",
        "hello from rank 0",
        "3 * 4",
        "sum(range(4))",
        "[i for i in range(3)]",
        "",
        "it's",
        "10px",
        "\\d+",
        "ranks",
        "a.b.c",
        "left - right",
        "epoch-1",
        "foo(bar)",
        "rank" * 1000,
        "(" * 500,
        "-" * 1900 + "1",
        "\0",
    ],
)
def test_a_string_without_a_variable_is_a_literal(text: str) -> None:
    assert not is_expression(text)
    assert evaluate_expected(text, RANK_5_OF_8) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [("'rank'", "rank"), ('"10 * rank"', "10 * rank"), ("'hello world'", "hello world"), ("\"'rank'\"", "'rank'")],
)
def test_a_string_in_quotes_of_its_own_is_always_a_literal(text: str, value: str) -> None:
    assert not is_expression(text)
    assert evaluate_expected(text, RANK_5_OF_8) == value


def test_lists_and_mappings_are_evaluated_item_by_item() -> None:
    expected = {"sum": ["rank", {"deep": "rank * 2"}], "backend": "gloo", "ready": True, "none": None}
    assert evaluate_expected(expected, RANK_5_OF_8) == {
        "sum": [5, {"deep": 10}],
        "backend": "gloo",
        "ready": True,
        "none": None,
    }


def test_a_mapping_of_ranks_stands_for_the_value_of_the_rank() -> None:
    assert evaluate_expected({0: [0.0], 5: ["rank + 0.5"]}, RANK_5_OF_8) == [5.5]


def test_a_mapping_of_ranks_expects_nothing_of_a_rank_that_it_does_not_name() -> None:
    assert evaluate_expected({0: 1, 1: 2}, RANK_5_OF_8) is NOTHING_EXPECTED


def test_an_empty_mapping_is_a_value() -> None:
    assert evaluate_expected({}, RANK_5_OF_8) == {}


@pytest.mark.parametrize(
    "text",
    [
        "rank + wrld_size",
        "rnk * 10",
        "local_rnk + 1.5",
        "local_rnk",
        "world_siez - 1",
        "max(rnk, 1)",
        "sum(foo)",
        "rank + foo",
        "foo(rank)",
        "rank(0)",
        "rank.real",
        "rank.__class__",
        "().__class__.__bases__[0].__subclasses__()[rank]",
        "__import__('os').system('true') or rank",
        "open('/etc/passwd') if rank else 0",
        "lambda: rank",
        "(x := rank)",
        "{rank}",
        "{rank: 1}",
        "{**rank}",
        "[*range(rank)]",
        "f'{rank:>1000000000}'",
        "f'{rank!r}'",
        "sum([rank], start=1)",
        "sum(*[[rank]])",
        "[i async for i in range(rank)]",
        "[0 for rank.x in range(3)] + [rank, world_size]",
        "rank @ rank",
        "rank is None",
        "...  if rank else 0",
        "b'x' * rank",
        "(await rank)",
        "rank *",
        "min(rank",
        "rank, 1)",
        "world_size / [rank",
    ],
)
def test_what_looks_like_arithmetic_but_is_not_allowed_is_refused_when_it_is_read(text: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        is_expression(text)
    assert "the expression " in refusal.value.message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 / (rank - 5)", "division by zero"),
        ("[1, 2][rank]", "list index out of range"),
        ("rank + 'a'", "unsupported operand"),
        ("rank + sum", "unknown name 'sum'"),
        ("10.0 ** (1000 * rank)", "the number is too large"),
        ("int('x' + str(rank))", "invalid literal"),
        ("'%1000000000d' % rank", "% cannot format text"),
        ("[x for x in rank]", "not iterable"),
        ("9 ** 9 ** 9 * rank", "the number is too large"),
        ("2 ** (10 ** 9) + rank", "the number is too large"),
        ("1 << (10 ** 9) + rank", "the number is too large"),
        ("'a' * 10 ** 9 * rank", "the list or text is too long"),
        ("rank * [0] * 10 ** 9", "the list or text is too long"),
        ("[[[0] * 1000] * 1000] * 1000 * rank", "the list or text is too long"),
        ("range(10 ** 12)[rank]", "the range is too long"),
        ("round(rank, -10 ** 9)", "round() has too many digits"),
        ("[[x, x, x] for x in range(10 ** 5)][rank]", "the expression takes too many steps"),
        ("[[y for y in range(1000)] for x in range(1000)][rank]", "the expression takes too many steps"),
        ("[[0] * 9999 for x in range(9999)][rank]", "the expression takes too many steps"),
        ("[[[0] * 400] * 400 for x in range(100)][rank]", "the expression takes too many steps"),
        ("rank" + " + 1" * 100, "it is nested too deep"),
    ],
)
def test_an_expression_that_cannot_be_computed_is_named(text: str, reason: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        evaluate_expected(text, RANK_5_OF_8)
    assert refusal.value.message.startswith("the expression ")
    assert reason in refusal.value.message


def test_the_evaluator_is_imported_only_for_an_expression() -> None:
    program = (
        "import sys\n"
        "from lab.spec.expressions import RankVariables, evaluate_expected\n"
        "variables = RankVariables.of(1, 2, 1)\n"
        "assert evaluate_expected('gloo', variables) == 'gloo' and 'simpleeval' not in sys.modules\n"
        "assert evaluate_expected('rank', variables) == 1 and 'simpleeval' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


SYMBOLS = [*"+-*/%[](),:.={}<09x", "**", "<<", "==", "1e9", "'a'", "for", "in", "if", "else", "not", "lambda"]
words = st.sampled_from([*VARIABLES, *FUNCTIONS, *SYMBOLS])


@settings(max_examples=300, deadline=None)
@given(st.lists(words, max_size=20).map(" ".join) | st.text(max_size=40))
def test_any_text_is_a_value_or_a_scenario_error(text: str) -> None:
    with contextlib.suppress(ScenarioError):
        evaluate_expected(text, RANK_5_OF_8)


@given(st.integers(0, 1000), st.integers(1, 50), st.integers(1, 8))
def test_linear_arithmetic_agrees_with_python(factor: int, nnodes: int, nproc_per_node: int) -> None:
    for rank in {0, nnodes * nproc_per_node - 1}:
        variables = RankVariables.of(rank, nnodes, nproc_per_node)
        assert evaluate_expected(f"{factor} * rank + world_size - node_rank", variables) == (
            factor * rank + nnodes * nproc_per_node - rank // nproc_per_node
        )
