"""A module that a rank did not find: whose it is, and how it gets to the nodes."""

from __future__ import annotations

import re
import sys

from lab.diagnosis.facts import RunFacts
from lab.diagnosis.rank_facts import RankFacts

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([A-Za-z_]\w*)'$")
"""Of `a.b` the package `a` is there."""


def missing_module(error: str) -> str:
    """The name of the module that an exception says is not there; empty where it says something else."""
    found = _MISSING.match(error.strip().partition("\n")[0])
    return found[1] if found and found[1] not in sys.stdlib_module_names else ""


def way_to_module(facts: RunFacts, rank: RankFacts) -> str:
    """What to do about a module that a rank did not find, as a clause behind that; empty where that is not the matter.

    Nobody can install a file of the person's own: it has to lie where it is shipped.
    """
    module = missing_module(rank.error)
    if not module:
        return ""
    own = facts.not_shipped.get(module)
    if own is not None:
        return (
            f"; {own.path} was not shipped: nodes get the folder of the script, {own.folder}, without what .labignore "
            "names there and without hidden folders: put it into that"
        )
    return (
        "; the nodes do not have it: name its package under `requirements:` in the scenario, in a block `# /// script` "
        "at the head of the script, or in a file for `lab up --requirements`"
    )
