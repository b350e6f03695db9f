"""The evaluator of expected values: simpleeval with a budget.

It runs on the host, so it must neither reach anything of the host nor take long. simpleeval keeps expressions away from
everything but the names and functions they are given; this module keeps numbers, lists and work small. It is imported
only when a scenario holds an expression (`lab.spec.expressions`).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import simpleeval

MAX_WORK = 200_000
"""Steps of one evaluation: nodes evaluated, plus elements of every list that comes up on the way."""
MAX_BITS = 16_384
"""Largest whole number, in bits."""
MAX_DIGITS = 100
"""Most digits that `round` is asked for."""


class TooMuchError(ArithmeticError):
    """The expression would take too long or make too large a value."""


def compute(tree: ast.Expression, names: Mapping[str, int]) -> Any:
    """The value of an expression as plain data: tuples become lists, a complex number becomes [re, im].

    Args:
        tree: an expression that holds nothing but what `lab.spec.expressions` allows.
        names: values of the variables.

    Raises:
        Exception: one of `FAILURES`, among them `TooMuchError`.
    """
    return _Evaluator(names).plain_value(tree)


def reason(error: Exception) -> str:
    """Why an expression failed, in a few words."""
    if isinstance(error, OverflowError):
        return "the number is too large"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return str(error)


class _Evaluator(simpleeval.EvalWithCompoundTypes):  # type: ignore[misc]
    def __init__(self, names: Mapping[str, int]) -> None:
        super().__init__(operators=dict(_OPERATORS), functions={}, names=dict(names))
        self.functions = dict(FUNCTIONS)
        self._work_left = MAX_WORK

    def plain_value(self, tree: ast.Expression) -> Any:
        return self._plain(self.eval("", previously_parsed=tree.body))

    def _eval(self, node: ast.AST) -> Any:
        value = super()._eval(node)
        self._work_left -= _weight(value, self._work_left)
        if self._work_left < 0:
            raise TooMuchError("it takes too many steps")
        return value

    def _check_disallowed_items(self, item: Any) -> None:
        # In place of simpleeval's, which walks every list again: functions are the only objects within reach.
        if callable(item):
            raise simpleeval.FeatureNotAvailable("a function without a call is not a value")

    def _plain(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._plain(item) for item in value]
        if isinstance(value, complex):
            return [value.real, value.imag]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise TypeError(f"a {type(value).__name__} is not a value")


def _weight(value: Any, limit: int) -> int:
    """Elements of a value, nested lists included; counting stops once it is over the limit."""
    weight, waiting = 0, [value]
    while waiting and weight <= limit:
        item = waiting.pop()
        weight += 1
        if isinstance(item, (list, tuple)):
            if len(item) > limit:
                return limit + 1
            waiting.extend(item)
        elif isinstance(item, str):
            weight += len(item) // 64
        elif isinstance(item, int):
            weight += item.bit_length() // 1024
    return weight


def _bounded_bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise TooMuchError("the number is too large")


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _multiply(left: Any, right: Any) -> Any:
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, (list, tuple, str)) and isinstance(times, int):
            if times > 0 and _weight(sequence, MAX_WORK) * times > MAX_WORK:
                raise TooMuchError("the list or text is too long")
            if isinstance(sequence, str) and len(sequence) * max(times, 0) > MAX_WORK:
                raise TooMuchError("the list or text is too long")
    _bounded_bits(_bits(left) + _bits(right))
    return left * right


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1:
        _bounded_bits(_bits(base) * max(exponent, 0))
    return base**exponent


def _shift_left(value: Any, places: Any) -> Any:
    if isinstance(value, int) and isinstance(places, int):
        _bounded_bits(_bits(value) + max(places, 0))
    return value << places


def _modulo(left: Any, right: Any) -> Any:
    if isinstance(left, str):
        raise TypeError("% formats no text here")
    return left % right


def _range(*bounds: int) -> list[int]:
    numbers = range(*bounds)
    if len(numbers[: MAX_WORK + 1]) > MAX_WORK:
        raise TooMuchError("the range is too long")
    return list(numbers)


def _round(value: Any, digits: int | None = None) -> Any:
    if digits is not None and abs(digits) > MAX_DIGITS:
        raise TooMuchError("round has too many digits")
    return round(value, digits)


def _list(items: Iterable[Any] = ()) -> list[Any]:
    return list(items)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "float": float,
    "int": int,
    "len": len,
    "list": _list,
    "max": max,
    "min": min,
    "range": _range,
    "round": _round,
    "str": str,
    "sum": sum,
}
_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: _multiply,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: _modulo,
    ast.Pow: _power,
    ast.LShift: _shift_left,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Invert: operator.invert,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}

FAILURES: tuple[type[Exception], ...] = (ArithmeticError, TypeError, ValueError, LookupError, RecursionError)
FAILURES += (simpleeval.InvalidExpression,)
"""What an expression may raise."""
