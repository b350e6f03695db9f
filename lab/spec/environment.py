"""Environment variables of a scenario, and those that belong to the lab."""

from __future__ import annotations

import re

from lab.spec.kinds import Kind, text_or_number
from lab.spec.reading import Value, shown

LAB_VARIABLES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
"""What the lab sets for every worker, as torchrun does; beside these, everything in `LAB_PREFIXES`."""
LAB_PREFIXES = ("TORCHELASTIC_", "LAB_")
SETTABLE = ("LAB_RECORDER", "LAB_TRACE_VALUES", "LAB_SEED")
"""Those among them that a scenario may set: how the recorder works, and what `lab test --seed` gives a script."""

_NAME = "[A-Za-z_][A-Za-z0-9_]*"


def name_problem(name: str) -> str | None:
    """Why a scenario may not set a variable of this name; None if it may."""
    if not re.fullmatch(_NAME, name):
        return f"found the name {shown(name)}; allowed: letters, digits and _, no digit first"
    if name in LAB_VARIABLES or (name.startswith(LAB_PREFIXES) and name not in SETTABLE):
        return f"found {name}, which the lab sets itself; allowed: any other variable"
    return None


def environment() -> Kind:
    """Variables by name; numbers count as the text that stands in the file."""
    allowed = "a mapping of variables to text"

    def read(value: Value) -> dict[str, str]:
        variables = {}
        for key, item in value.pairs(allowed):
            with value.reading.attempt():
                name = key.as_key()
                wrong = name_problem(name)
                if wrong is not None:
                    raise key.problem(wrong)
                variables[name] = text_or_number().read(item)
        return variables

    taken = [{"pattern": f"^(?!({'|'.join(SETTABLE)})$)({'|'.join(LAB_PREFIXES)})"}, {"enum": list(LAB_VARIABLES)}]
    names = {"pattern": f"^{_NAME}$", "not": {"anyOf": taken}}
    schema = {"type": "object", "propertyNames": names, "additionalProperties": text_or_number().schema}
    return Kind(f"{allowed} or numbers, without those that the lab sets itself", read, schema, dict)
