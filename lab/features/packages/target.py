"""What packages are for: a Python, the machine that it runs on, and what it has already."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lab.errors import ClusterError
from lab.features.packages import probe
from lab.features.packages.requirements import package_of
from lab.words import clip

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PROBE_DEADLINE_S = 60
"""How long a Python may take to say what it has."""


@cache
def probe_text() -> str:
    """The program that a Python runs to say what it is."""
    return Path(probe.__file__).read_text()


class Package(NamedTuple):
    """A distribution that is there."""

    version: str
    extras: Sequence[str] = ()
    requires: Sequence[str] = ()
    """What its extras need."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A Python that packages are for."""

    what: str
    """What it is the Python of, such as `image lab-node:0.1.0`."""
    executable: str
    python: str
    """`3.11`"""
    abi: str
    """`cp311`"""
    platforms: Sequence[str]
    """Those of wheels that fit, the best first."""
    markers: Mapping[str, str]
    folders: Sequence[str]
    """The folders of its packages."""
    modules: Collection[str]
    """What it can import, as paths without suffixes: `torch`, or `google/protobuf` in a namespace."""
    programs: Collection[str]
    """Names of the programs beside it."""
    system_programs: Collection[str]
    """Names of all programs on `PATH`."""
    has: Mapping[str, Package]

    @classmethod
    def told(cls, what: str, text: str) -> Target:
        """What a Python said of itself.

        Raises:
            ClusterError: it said something else.
        """
        try:
            data: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
            for name in ("modules", "programs", "system_programs"):
                data[name] = frozenset(data[name])
            data["has"] = {name: Package(**about) for name, about in data["has"].items()}
            return cls(what=what, **data)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ClusterError(f"the Python of {what} does not say what it has: {clip(text.strip(), 200)}") from error

    @property
    def name(self) -> str:
        """`Python 3.11 on x86_64`."""
        return f"Python {self.python} on {self.markers['platform_machine']}"

    @property
    def other_image(self) -> str:
        """What helps where what is there does not fit, as the end of a hint."""
        elsewhere = "" if self.what.startswith("image ") else ", with --engine docker"
        return f"or take an image that has it: `image:` in the scenario, or --image{elsewhere}"

    def meets(self, requirement: str) -> bool:
        """Whether what is there is all that a requirement asks for."""
        from packaging.requirements import Requirement

        return self._meets(Requirement(requirement))

    def _meets(self, wanted: Requirement) -> bool:
        from packaging.requirements import Requirement

        if wanted.marker is not None and not wanted.marker.evaluate(dict(self.markers)):
            return True
        there = self.has.get(package_of(str(wanted)))
        if there is None or wanted.url is not None or not fits(wanted, there.version):
            return False
        needed = [Requirement(text) for text in there.requires] if wanted.extras else []
        return all(
            self._meets(Requirement(str(one).partition(";")[0]))
            for one in needed
            for extra in wanted.extras
            if one.marker is not None and one.marker.evaluate({**self.markers, "extra": extra})
        )


def fits(wanted: Requirement, version: str) -> bool:
    """Whether a version is one that a requirement allows."""
    return wanted.specifier.contains(version, prereleases=True)
