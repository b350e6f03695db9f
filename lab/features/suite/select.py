"""Which cases are meant by `-k`: words that their name or file contains, with `and`, `or`, `not` and brackets. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from lab.errors import UsageError
from lab.features.suite.case import Case

Meant = Callable[[str], bool]
_TOKENS = re.compile(r"\s*([()]|[^\s()]+)")
_WORDS = ("and", "or", "not", "(", ")")


def matching(expression: str) -> Callable[[Case], bool]:
    """Whether a case is meant by an expression such as `scatter and not nodes=5`; letters may be small or capital.

    Raises:
        UsageError: it is not such an expression.
    """
    reading = _Reading(_TOKENS.findall(expression), expression)
    meant = reading.any_of()
    if reading.tokens:
        raise reading.problem()
    return lambda case: meant(f"{case.scenario.source or case.scenario.script} {case.id}".lower())


class _Reading:
    def __init__(self, tokens: list[str], expression: str) -> None:
        self.tokens = tokens
        self.expression = expression

    def any_of(self) -> Meant:
        parts = [self.all_of()]
        while self._next("or"):
            parts.append(self.all_of())
        return lambda text: any(part(text) for part in parts)

    def all_of(self) -> Meant:
        parts = [self.one()]
        while self._next("and"):
            parts.append(self.one())
        return lambda text: all(part(text) for part in parts)

    def one(self) -> Meant:
        if self._next("not"):
            other = self.one()
            return lambda text: not other(text)
        if self._next("("):
            inner = self.any_of()
            if not self._next(")"):
                raise self.problem()
            return inner
        if not self.tokens or self.tokens[0] in _WORDS:
            raise self.problem()
        word = self.tokens.pop(0).lower()
        return lambda text: word in text

    def _next(self, token: str) -> bool:
        if self.tokens and self.tokens[0] == token:
            self.tokens.pop(0)
            return True
        return False

    def problem(self) -> UsageError:
        """What to say of an expression that is none."""
        where = f"at {self.tokens[0]!r}" if self.tokens else "at its end"
        return UsageError(
            f"-k {self.expression!r} cannot be understood {where}",
            "allowed: words of names or files with and, or, not and brackets, such as 'scatter and not nodes=5'",
        )
