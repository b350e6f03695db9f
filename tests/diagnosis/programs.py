"""The programs whose diagnoses are scored, with what is true of them.

`broken` holds programs with one fault each, `legal` such as look odd and are right. What is true stands in comments at
the head of each, one `# key: value` a line:

    kind      kinds of the first finding that are right, between bars; see docs/explain.md
    rank      who did it: `2`, `0 2`, `nobody`; what else is right, between bars
    innocent  who must not be accused; without it everybody whom `rank` does not name
    says      pattern that has to be found in what is said; may come again
    never     pattern that must not be found there; may come again
    allow     kinds that may be found in a legal program beside those that accuse nobody
    nodes     how many, each with one rank; without it 3
    timeout   time after which it is stopped; without it 2 s, and 30 s for a legal one

`# cause` at the end of a line marks where the fault is: one of these lines has to be named for whoever is named, or for
anybody where nobody is. `# also` marks a line that has to be named, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
_HEAD = re.compile(r"^# (kind|rank|innocent|says|never|allow|nodes|timeout): (.+)$", re.MULTILINE)
_NODES = 3
_TIMEOUT_S = 2.0
_LEGAL_TIMEOUT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program and what is true of it."""

    path: Path
    nodes: int
    timeout_s: float
    kinds: frozenset[str]
    """Empty for a legal program."""
    culprits: tuple[frozenset[int], ...]
    """Each is a right answer; an empty one stands for nobody."""
    innocent: frozenset[int]
    says: tuple[str, ...]
    never: tuple[str, ...]
    allowed: frozenset[str]
    causes: tuple[str, ...]
    """Lines, `name.py:12`."""
    also: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def legal(self) -> bool:
        return not self.kinds


def read_programs() -> list[Program]:
    """All of them: the broken ones first."""
    return [read_program(path) for folder in ("broken", "legal") for path in sorted((HERE / folder).glob("*.py"))]


def read_program(path: Path) -> Program:
    text = path.read_text()
    head: dict[str, list[str]] = {}
    for key, value in _HEAD.findall(text):
        head.setdefault(key, []).append(value.strip())
    nodes = int(head.get("nodes", [str(_NODES)])[0])
    default_s = f"{_TIMEOUT_S if 'kind' in head else _LEGAL_TIMEOUT_S}s"
    culprits = tuple(_ranks(answer) for answer in "|".join(head.get("rank", ["nobody"])).split("|"))
    named = frozenset().union(*culprits)
    innocent = _ranks(head["innocent"][0]) if "innocent" in head else frozenset(range(nodes)) - named
    return Program(
        path=path,
        nodes=nodes,
        timeout_s=float(head.get("timeout", [default_s])[0].removesuffix("s")),
        kinds=_kinds(head.get("kind", [])),
        culprits=culprits,
        innocent=innocent,
        says=tuple(head.get("says", ())),
        never=tuple(head.get("never", ())),
        allowed=_kinds(head.get("allow", [])),
        causes=_marked(path.name, text, "cause"),
        also=_marked(path.name, text, "also"),
    )


def _ranks(answer: str) -> frozenset[int]:
    return frozenset(int(word) for word in answer.split() if word not in ("nobody", "none"))


def _kinds(values: list[str]) -> frozenset[str]:
    return frozenset(word for value in values for word in re.split(r"[\s|]+", value))


def _marked(name: str, text: str, mark: str) -> tuple[str, ...]:
    lines = enumerate(text.splitlines(), start=1)
    return tuple(f"{name}:{number}" for number, line in lines if line.endswith(f"  # {mark}"))
