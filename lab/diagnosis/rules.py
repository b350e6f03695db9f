"""What features add to a diagnosis: rules, functions of the evidence of a run that return findings.

`Feature.findings` names them by when they are asked:

| name | what they find |
|---|---|
| `counts` | in a run that broke, what ranks had done more or less often than others |
| `state` | what ranks hold that should be the same on all of them |
| `results` | what operations gave that no inputs give |
| `values` | what ranks brought to operations that spoils what those give |
| `hints` | what may be wrong |
| `explain` | for `lab explain`, what else is true of a run; they are given an `Explained` |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding
from lab.feature import feature_findings


class Explained(NamedTuple):
    """A run whose causes are known."""

    evidence: Evidence
    causes: Sequence[Finding]
    ended_well: bool
    """Whether it did not hang or fail."""


def apply_rules(run: Evidence | Explained, *names: str) -> list[Finding]:
    """What the rules of these names find, in their order."""
    return [one for name in names for rule in feature_findings(name) for one in rule(run)]
