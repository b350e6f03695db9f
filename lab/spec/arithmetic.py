"""Evaluate expressions in expected values: simpleeval with a budget.

It runs on the host, so expressions must not reach anything of the host and must not take long. simpleeval limits
expressions to the names and functions that it gets; this module limits numbers, lists, and work. It is imported only
if a scenario contains an expression (`lab.spec.expressions`).
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Mapping
from typing import Any

import simpleeval

MAX_WORK = 200_000
"""Steps of one evaluation: evaluated nodes, plus elements of each intermediate list."""
MAX_DEPTH = 100
"""Levels of an expression; a sum of n numbers has n."""
MAX_BITS = 16_384
MAX_DIGITS = 100
simpleeval.MAX_COMPREHENSION_LENGTH = MAX_WORK


class TooMuchError(ArithmeticError):
    """The expression would take too long or make too large a value."""


def compute_expression(tree: ast.Expression, variables: Mapping[str, int], functions: Iterable[str]) -> Any:
    """Compute an expression as plain data: tuples become lists, a complex number becomes [re, im].

    The expression contains only what `lab.spec.expressions` allows, and calls only these built-in functions.

    Raises:
        ArithmeticError: it cannot be computed; the message says why in a few words.
    """
    try:
        return _plain(_Evaluator(variables, functions).eval("", previously_parsed=tree.body))
    except OverflowError:
        raise TooMuchError("the number is too large") from None
    except RecursionError:  # the caller's frames count too
        raise TooMuchError("it is nested too deep") from None
    except (TypeError, ValueError, LookupError, simpleeval.InvalidExpression) as error:
        raise ArithmeticError(str(error)) from None


class _Evaluator(simpleeval.EvalWithCompoundTypes):  # type: ignore[misc]
    def __init__(self, variables: Mapping[str, int], functions: Iterable[str]) -> None:
        super().__init__(operators=_OPERATORS, names=dict(variables))
        self.functions = {name: _BOUNDED.get(name) or getattr(builtins, name) for name in functions}
        self._work_left = MAX_WORK
        self._depth = 0

    def _eval(self, node: ast.AST) -> Any:
        if self._depth == MAX_DEPTH:
            raise TooMuchError("it is nested too deep")
        self._depth += 1
        value = super()._eval(node)
        self._depth -= 1
        self._work_left -= _weight(value, self._work_left)
        if self._work_left < 0:
            raise TooMuchError("the expression takes too many steps")
        return value

    def _check_disallowed_items(self, item: Any) -> None:
        # Replaces simpleeval's check, which walks each list again: only functions are reachable objects.
        if callable(item):
            raise simpleeval.FeatureNotAvailable("a function without a call is not a value")


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, complex):
        return [value.real, value.imag]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a {type(value).__name__} is not a value")


def _weight(value: Any, limit: int) -> int:
    """Count the elements of a value, including nested lists; stop once the count is over the limit."""
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


def _check_bits(value: Any, times: int = 1, extra_bits: int = 0) -> None:
    if isinstance(value, int) and value.bit_length() * times + extra_bits > MAX_BITS:
        raise TooMuchError("the number is too large")


def _multiply(left: Any, right: Any) -> Any:
    for items, times in ((left, right), (right, left)):
        if isinstance(items, (list, tuple, str)) and isinstance(times, int):
            size = len(items) if isinstance(items, str) else _weight(items, MAX_WORK)
            if size * times > MAX_WORK:
                raise TooMuchError("the list or text is too long")
    _check_bits(left, extra_bits=right.bit_length() if isinstance(right, int) else 0)
    return left * right


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(exponent, int) and base not in (-1, 0, 1):
        _check_bits(base, times=max(exponent, 0))
    return base**exponent


def _shift_left(value: Any, shift: Any) -> Any:
    _check_bits(value, extra_bits=max(shift, 0))
    return value << shift


def _modulo(left: Any, right: Any) -> Any:
    if isinstance(left, str):
        raise TypeError("% cannot format text")
    return left % right


def _range(*bounds: int) -> list[int]:
    numbers = range(*bounds)
    if len(numbers[: MAX_WORK + 1]) > MAX_WORK:
        raise TooMuchError("the range is too long")
    return list(numbers)


def _round(value: Any, digits: int | None = None) -> Any:
    if digits is not None and abs(digits) > MAX_DIGITS:
        raise TooMuchError("round() has too many digits")
    return round(value, digits)


_BOUNDED: Mapping[str, Any] = {"range": _range, "round": _round}
_OWN_OPERATORS = {ast.Mult: _multiply, ast.Pow: _power, ast.LShift: _shift_left, ast.Mod: _modulo}
_OPERATORS = {**simpleeval.DEFAULT_OPERATORS, **_OWN_OPERATORS}
