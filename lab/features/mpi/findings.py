"""Scripts that named another backend or address than the run's, and what their groups got."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.diagnosis.evidence import Explained
from lab.diagnosis.finding import Finding, Kind, Words
from lab.diagnosis.wording import render_lines
from lab.grouping import group_pairs
from lab.node.messages.agent import Named
from lab.words import clip_end, name_ranks

_LONGEST_BACKEND = 80


class BackendKind(Kind):
    """The kinds of findings of this feature."""

    BACKEND = "backend", 8
    ADDRESS = "address", 8


class BackendNamed(Finding):
    """A backend or address that a script named, other than the run's, and what happened to it."""

    kind: Kind = BackendKind.BACKEND
    named: str
    backend: str
    instead: bool = False
    at: tuple[str, ...] = ()

    def render(self) -> Words:
        """Render which ranks named it, and what the groups got."""
        where = render_lines(clip_end(line, _LONGEST_BACKEND) for line in self.at)
        who = f"{name_ranks(self.others)} named {clip_end(self.named, _LONGEST_BACKEND)}{where}"
        if self.instead:
            return f"{who}, but got {self.backend} instead, as requested"
        return f"{who}, not {self.backend} as the scenario says"


def explain_backends(run: Explained) -> list[Finding]:
    """Return a finding for each backend or address that scripts named and the run does not have."""
    return find_named_backends(run.evidence.facts.named)


def find_named_backends(named: Sequence[Named]) -> list[Finding]:
    """Return a finding for each backend or address that scripts named and the run does not have."""
    alike = group_pairs(((one.named, one.backend, one.instead), one) for one in named)
    findings = list[Finding]()
    for (name, backend, instead), ones in alike.items():
        others, lines = tuple(sorted({one.rank for one in ones})), tuple(one.at for one in ones)
        kind = BackendKind.ADDRESS if "://" in name else BackendKind.BACKEND
        facts: dict[str, Any] = {"named": name, "backend": backend, "instead": instead, "at": lines}
        findings.append(BackendNamed(kind=kind, lines=lines, others=others, **facts))
    return findings
