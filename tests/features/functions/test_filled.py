from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from lab.features.functions.distributed import distributed, to_fill
from lab.features.functions.on_node.calls import fill_arguments
from tests.golden import golden

RANK = {"rank": 0, "world_size": 3}


def first(rank: int, v: int, w: int = 5) -> Any:
    return rank, v, w


def several(self: int, rank: int, v: int = 1, world_size: int = 2, *more: int, **others: int) -> Any:
    return self, rank, v, world_size, more, others


def rest(rank: int, v: int, world_size: int, w: int = 5, *more: int) -> Any:
    return rank, v, world_size, w, more


def alone(rank: int, v: int, /, world_size: int, w: int = 5) -> Any:
    return rank, v, world_size, w


def behind(v: int, *group: int, rank: int) -> Any:
    return v, group, rank


@pytest.mark.parametrize(
    ("function", "arguments", "named", "result"),
    [
        (first, (3,), {}, (0, 3, 5)),
        (first, (3, 4), {}, (0, 3, 4)),
        (first, (), {"v": 3}, (0, 3, 5)),
        (first, (3,), {"rank": 7}, (7, 3, 5)),
        (several, (9,), {}, (9, 0, 1, 2, (), {})),
        (several, (9, 8, 7, 6), {"o": 4}, (9, 0, 8, 7, (6,), {"o": 4})),
        (rest, (3,), {}, (0, 3, 3, 5, ())),
        (rest, (3, 4, 1, 2), {}, (0, 3, 3, 4, (1, 2))),
        (alone, (3,), {}, (0, 3, 3, 5)),
        (alone, (3,), {"w": 4}, (0, 3, 3, 4)),
        (behind, (3, 4), {}, (3, (4,), 0)),
    ],
)
def test_what_is_given_by_position_is_for_the_parameters_that_ranks_do_not_fill_in(
    function: Callable[..., Any], arguments: tuple[int, ...], named: dict[str, int], result: tuple[Any, ...]
) -> None:
    filled = {name: RANK[name] for name in to_fill(inspect.signature(function))}
    by_position, by_name = fill_arguments(function, filled, arguments, named)
    assert function(*by_position, **by_name) == result


def test_what_a_function_does_not_take_is_said_before_anything_is_sent() -> None:
    with pytest.raises(TypeError, match=golden(1)):
        distributed(first)()
