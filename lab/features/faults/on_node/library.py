"""The deed `library`: the process that makes links is lent pyroute2, of which it then imports what it needs.

No image has to have it, no file is written, and workers do not see it: it is in the memory of that one process.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .deeds import Context

NAME = "pyroute2"
LACKING = f"it has no {NAME} yet"
"""Said by whoever needs it first; then it is to be lent, and the request made again."""
_lenders: list[Any] = []


def apply(_: Context, said: dict[str, Any]) -> dict[str, Any]:
    """Take it, in the place of one that the image may have.

    Args:
        said: `files`, its text by path.
    """
    from ....node.lent import Lender, Lent

    lender = Lender(lambda _: None)
    lender.keep(Lent(NAME, said["files"], {}))
    _lenders.append(lender)
    sys.meta_path.insert(0, lender)
    return {}


def there() -> bool:
    """Whether this process was lent it."""
    return bool(_lenders)
