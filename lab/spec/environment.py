"""Environment variables of a scenario, and those that belong to the lab."""

from __future__ import annotations

import re

from yaml.nodes import Node

from lab.spec.document import position_of
from lab.spec.problems import InvalidError, Problems, shown
from lab.spec.section import pairs, text_key
from lab.spec.values import text_or_number

LAB_VARIABLES = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_NAME",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
    }
)
"""What the lab sets for every worker, as torchrun does; beside these, everything in `LAB_PREFIXES`."""
LAB_PREFIXES = ("TORCHELASTIC_", "LAB_")
SETTABLE = ("LAB_RECORDER", "LAB_TRACE_VALUES")
"""Those among them that a scenario may set: they say how the recorder works."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def name_problem(name: str) -> str | None:
    """Why a scenario may not set a variable of this name; None if it may."""
    if not _NAME.fullmatch(name):
        return f"found the name {shown(name)}; allowed: letters, digits and _, no digit first"
    if name in LAB_VARIABLES or (name.startswith(LAB_PREFIXES) and name not in SETTABLE):
        return f"found {name}, which the lab sets itself; allowed: any other variable"
    return None


def environment(node: Node, field: str, problems: Problems) -> dict[str, str]:
    """Variables by name; numbers count as the text that stands in the file."""
    variables = {}
    for key, value in pairs(node, field, "a mapping of variables to text", problems):
        with problems.attempt():
            name = text_key(key, field)
            wrong = name_problem(name)
            if wrong is not None:
                raise InvalidError(position_of(key), f"{field}: {wrong}")
            variables[name] = text_or_number(value, f"{field}.{name}")
    return variables
