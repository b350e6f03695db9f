"""Frozen dataclasses whose methods are written here once, and not compiled anew for each class.

`dataclasses.dataclass` compiles six methods for every class, which takes it 0.7 to 6 ms: for the two dozen classes of a
plain `lab run`, an eighth of all of its time. Its fields, `replace`, `asdict` and `fields` are those of `dataclasses`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
    from typing import TypeVar

    from typing_extensions import dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_: Any) -> Callable[[type[T]], type[T]]:
        """For type checkers only."""
        return lambda kind: kind

    def dataclass(*, frozen: bool, kw_only: bool) -> Callable[[type[T]], type[T]]:
        """As `dataclasses.dataclass(frozen=True, kw_only=True)`; there are no others."""
        if not (frozen and kw_only):
            raise TypeError("a dataclass of this kind is frozen, and made by keywords only")
        return _with_methods


__all__ = ["Frozen", "dataclass"]


class _Methods:
    """What every such class has, unless it has its own."""

    __frozen_fields__: dict[str, dataclasses.Field[Any]]

    def __init__(self, **given: Any) -> None:
        values = vars(self)
        for name, field in self.__frozen_fields__.items():
            if name in given:
                values[name] = given.pop(name)
            elif field.default is not dataclasses.MISSING:
                values[name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                values[name] = field.default_factory()
            else:
                raise TypeError(f"{type(self).__name__} needs {name}")
        if given:
            raise TypeError(f"{type(self).__name__} has no {', '.join(given)}")
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in _values(self).items())})"

    def __eq__(self, other: object) -> bool:
        return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(_values(self).values()))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


_SHARED = {name: method for name, method in vars(_Methods).items() if callable(method)}


def _with_methods(kind: type[T]) -> type[T]:
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False, kw_only=True)(kind)
    made.__frozen_fields__ = {field.name: field for field in dataclasses.fields(made)}
    for name, method in _SHARED.items():
        if name not in vars(kind):
            setattr(made, name, method)
    return kind


def _values(of: Any) -> dict[str, Any]:
    return {name: vars(of)[name] for name in of.__frozen_fields__}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
class Frozen:
    """The base of classes that are such dataclasses without the decorator."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)
