"""Evaluate expected values: literals, and arithmetic on variables that differ between ranks.

A string is arithmetic if it parses as a Python expression and uses one of the variables of `RankVariables`. Any other
string is a literal, and so is a string in quotes of its own (`"'rank'"`). If text is clearly meant as arithmetic but
cannot be computed, loading the scenario fails, not a comparison after the run.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from lab.errors import ScenarioError
from lab.spec.reading import clip_repr, did_you_mean

FUNCTIONS = ("abs", "float", "int", "len", "list", "max", "min", "range", "round", "str", "sum")
MAX_LENGTH = 2000
"""Longest text, in characters, that is parsed as an expression; longer text is a literal."""
NOTHING_EXPECTED: Final = object()
"""Result of `evaluate_expected` for a rank that a mapping per rank does not name."""

_QUOTE = "for this text itself, use two pairs of quotes: \"'...'\""
_NODES = (
    ast.Expression, ast.Constant, ast.Name, ast.List, ast.Tuple, ast.ListComp, ast.GeneratorExp, ast.comprehension,
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Subscript, ast.Slice, ast.JoinedStr,
    ast.FormattedValue, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
_REFUSED_NODES = (ast.MatMult, ast.Is, ast.IsNot)
_WORDS = {"Is": "'is'", "IsNot": "'is not'", "Attribute": "a '.' behind a name", "Dict": "a mapping"}


class RankVariables(NamedTuple):
    """The variables of one rank that an expression can use, as torchrun defines them."""

    rank: int
    local_rank: int
    node_rank: int
    world_size: int
    nnodes: int
    nproc_per_node: int

    @classmethod
    def of(cls, rank: int, nnodes: int, nproc_per_node: int) -> RankVariables:
        """Return the variables of one rank of a run; ranks are node-major."""
        node_rank, local_rank = divmod(rank, nproc_per_node)
        return cls(rank, local_rank, node_rank, nnodes * nproc_per_node, nnodes, nproc_per_node)


VARIABLES = RankVariables._fields


def rank_variables(nnodes: int, nproc_per_node: int) -> dict[int, RankVariables]:
    """Return the variables of each rank of a run, by rank."""
    return {rank: RankVariables.of(rank, nnodes, nproc_per_node) for rank in range(nnodes * nproc_per_node)}


def evaluate_expected(expected: Any, variables: RankVariables) -> Any:
    """Evaluate the expected note of one rank; `NOTHING_EXPECTED` if a mapping per rank does not name it.

    Strings can be expressions. Lists and mappings are evaluated item by item. A mapping with only integer keys holds
    one value per rank.
    """
    if is_per_rank(expected):
        return _value(expected[variables.rank], variables) if variables.rank in expected else NOTHING_EXPECTED
    return _value(expected, variables)


def is_per_rank(expected: Any) -> bool:
    """Whether an expected value is a mapping from ranks to values."""
    return isinstance(expected, Mapping) and bool(expected) and all(type(key) is int for key in expected)


def is_expression(text: str) -> bool:
    """Return whether a string is arithmetic on rank variables; raise `ScenarioError` if it is broken arithmetic."""
    return isinstance(_understand(text), ast.Expression)


def _value(expected: Any, variables: RankVariables) -> Any:
    if isinstance(expected, str):
        meaning = _understand(expected)
        return _compute(expected, meaning, variables) if isinstance(meaning, ast.Expression) else meaning
    if isinstance(expected, (list, tuple)):
        return [_value(item, variables) for item in expected]
    if isinstance(expected, Mapping):
        return {key: _value(item, variables) for key, item in expected.items()}
    return expected


def _compute(text: str, tree: ast.Expression, variables: RankVariables) -> Any:
    from lab.spec import arithmetic  # imports simpleeval, which few scenarios need

    try:
        return arithmetic.compute_expression(tree, variables._asdict(), FUNCTIONS)
    except ArithmeticError as error:
        why = f"cannot be computed for rank {variables.rank}: {error}"
        allowed = "allowed: an expression that every rank can compute, or a value for each rank"
        raise ScenarioError(f"the expression {clip_repr(text)} {why}; {allowed}") from None


@lru_cache(maxsize=4096)
def _understand(text: str) -> ast.Expression | str:
    """Return the parsed expression, or the literal that the text means."""
    if (tree := _parse(text)) is None:
        if _is_broken(text):
            tip = "in a YAML list in brackets, an expression with a comma must be in quotes"
            raise ScenarioError(f"the expression {clip_repr(text)} is not complete; {tip}; {_QUOTE}")
        return text
    if isinstance(tree.body, ast.Constant) and isinstance(tree.body.value, str):
        return tree.body.value
    parts = list(ast.walk(tree))
    names = [part for part in parts if isinstance(part, ast.Name)]
    used = {name.id for name in names} - {name.id for name in names if not isinstance(name.ctx, ast.Load)}
    if not used.intersection(VARIABLES):
        if (misspelt := _misspelt(parts, used)) is not None:
            raise _unknown(text, "uses", "name", misspelt, VARIABLES)
        return text
    for part in parts:
        if (what := _why_not(part)) is not None:
            raise ScenarioError(f"the expression {clip_repr(text)} uses {what}, which is not available; {_QUOTE}")
    called = {part.func.id for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)}
    for name in sorted(called.difference(FUNCTIONS)):
        raise _unknown(text, "calls", "function", name, FUNCTIONS)
    for name in sorted(used - called - set(VARIABLES)):
        raise _unknown(text, "uses", "name", name, VARIABLES)
    return tree


def _unknown(text: str, does: str, what: str, name: str, allowed: Iterable[str]) -> ScenarioError:
    unknown = f"{what} {clip_repr(name)}{did_you_mean(name, allowed)}"
    message = f"the expression {clip_repr(text)} {does} the unknown {unknown}"
    return ScenarioError(f"{message}; allowed: {', '.join(allowed)}; {_QUOTE}")


def _parse(text: str) -> ast.Expression | None:
    if len(text) > MAX_LENGTH:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as an invalid escape in a literal
            return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _why_not(part: ast.AST) -> str | None:
    """Name the part of an expression if expressions cannot contain it."""
    if not isinstance(part, _NODES) or isinstance(part, _REFUSED_NODES):
        return _WORDS.get(type(part).__name__, type(part).__name__)
    if isinstance(part, ast.Constant) and isinstance(part.value, (bytes, type(...))):
        return repr(part.value)
    if isinstance(part, ast.Call) and (part.keywords or not isinstance(part.func, ast.Name)):
        return "a keyword argument" if part.keywords else "a call of a function without a name"
    if isinstance(part, ast.FormattedValue) and (part.format_spec is not None or part.conversion != -1):
        return "a format in an f-string"
    if isinstance(part, ast.comprehension):
        targets = part.target.elts if isinstance(part.target, ast.Tuple) else [part.target]
        if part.is_async or not all(isinstance(target, ast.Name) for target in targets):
            return "such a 'for'"
    return None


def _is_broken(text: str) -> bool:
    """Return whether text does not parse although it has only known names, numbers, and operators."""
    words = set(re.findall("[A-Za-z_][A-Za-z0-9_]*", text)) if len(text) <= MAX_LENGTH else set()
    is_known = bool(words.intersection(VARIABLES)) and words <= {*VARIABLES, *FUNCTIONS, "for", "in"}
    return is_known and re.search(r"[-+*/%(\[<>=]\s*$|[*/%()\[\]<>=]", text) is not None


def _misspelt(parts: Iterable[ast.AST], used: Iterable[str]) -> str | None:
    """Return a name that makes a text an expression with a mistake: nearly a variable, or an argument of a function.

    The text computes something, as in `world_siez - 1` and `max(x, 1)`. A word of its own can be any text, unless it is
    nearly a variable and has an underscore, as in `local_rnk`.
    """
    from difflib import get_close_matches

    calls = {part.func.id for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)}
    computes = calls or any(isinstance(part, (ast.BinOp, ast.Compare, ast.UnaryOp)) for part in parts)
    for name in sorted({*used} - calls):
        is_near = (computes or "_" in name) and get_close_matches(name, VARIABLES, n=1, cutoff=0.85)
        if is_near or calls.intersection(FUNCTIONS):
            return name
    return None
