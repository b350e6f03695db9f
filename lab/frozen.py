"""Frozen dataclasses whose methods are written once here, not compiled for each class.

`dataclasses.dataclass` compiles six methods for each class, in 0.7 to 6 ms. For the two dozen classes of a plain
`lab run`, that is an eighth of its time. Fields, `replace`, `asdict`, and `fields` are those of `dataclasses`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

if TYPE_CHECKING:
    from collections.abc import Collection

    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Do nothing; only type checkers use it."""
        return lambda kind: kind


def refuse_arguments(kind: type, unknown: Collection[str], known: Collection[str]) -> None:
    """Raise a TypeError, which names a near match, if there are unknown arguments for a class."""
    if unknown:
        from difflib import get_close_matches  # only errors need it

        near = get_close_matches(next(iter(unknown)), known, 1)
        meant = f" (did you mean {near[0]!r}?)" if near else f"; allowed: {', '.join(known)}"
        raise TypeError(f"{kind.__name__}() got an unexpected keyword argument {', '.join(unknown)}{meant}")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
class Frozen:
    """Base of classes that behave as with `dataclasses.dataclass(frozen=True, kw_only=True)`."""

    __frozen_fields__: ClassVar[dict[str, dataclasses.Field[Any]]] = {}

    def __init_subclass__(cls) -> None:
        made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False, kw_only=True)(cls)
        cls.__frozen_fields__ = {field.name: field for field in dataclasses.fields(made)}

    def __init__(self, **arguments: Any) -> None:
        values = vars(self)
        for name, field in self.__frozen_fields__.items():
            if name in arguments:
                values[name] = arguments.pop(name)
            elif field.default is not dataclasses.MISSING:
                values[name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                values[name] = field.default_factory()
            else:
                raise TypeError(f"{type(self).__name__} needs {name}")
        refuse_arguments(type(self), arguments, values)
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    def _values(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self.__frozen_fields__}

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={one!r}' for name, one in self._values().items())})"

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._values().values()))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
