"""The wheels that a Python lacks, fetched on this machine; what it has is left as it is."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.errors import ClusterUnfit
from lab.features.packages.pip import run_pip
from lab.features.packages.target import Package, Target, fits

_BEFORE_ALL_OTHERS = "999999999"
"""A build number: of wheels that fit as well and have the same version, pip takes the one with the highest."""


def fetch_wheels(
    target: Target, requirements: Sequence[str], folder: Path, tell: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Fetch what a Python lacks of what is required, with all that it needs, into a folder that is there.

    What the Python has counts as it is: pip finds a wheel of each in a folder, which holds nothing but its name, and
    may choose no other version.

    Raises:
        LabError: a requirement contradicts what is there, or cannot be fetched.
    """
    _refuse_contradictions(target, requirements)
    there, wheels, fixed = folder / "there", folder / "wheels", folder / "there.txt"
    there.mkdir()
    wheels.mkdir()
    known = {name: package for name, package in target.has.items() if _is_version(package.version)}
    for name, package in known.items():
        _write_stand_in(there, target, name, package)
    fixed.write_text("".join(f"{name}==={package.version}\n" for name, package in known.items()))
    tell("packages: looking for what is missing")
    options = ["--find-links", str(there), "--constraint", str(fixed), "--dest", str(wheels)]
    run_pip(target, ["download", *options, *fitting(target), "--", *requirements], folder, tell)
    stand_ins = {path.name for path in there.iterdir()}
    return sorted(path for path in wheels.iterdir() if path.name not in stand_ins)


def fitting(target: Target) -> list[str]:
    """The options of pip by which only wheels for that Python are taken."""
    version = ["--implementation", "cp", "--python-version", target.python, "--abi", target.abi]
    return ["--only-binary=:all:", *version, *(f"--platform={platform}" for platform in target.platforms)]


def _refuse_contradictions(target: Target, requirements: Sequence[str]) -> None:
    from packaging.requirements import Requirement

    for wanted in map(Requirement, requirements):
        there = target.has.get(wanted.name)
        meant = wanted.marker is None or wanted.marker.evaluate(dict(target.markers))
        if there is not None and meant and (wanted.url is not None or not fits(wanted, there.version)):
            raise ClusterUnfit(
                f"{wanted} was asked for, and {target.what} has {wanted.name} {there.version}, which stays",
                f"leave its version out, {target.other_image}",
            )


def _write_stand_in(folder: Path, target: Target, name: str, package: Package) -> None:
    """A wheel that says that a package is there, and what its extras need besides."""
    as_file = name.replace("-", "_")
    version = re.sub("-", "_", package.version)
    tag = f"cp{target.python.replace('.', '')}-{target.abi}-{target.platforms[0]}"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {package.version}"]
    lines += [f"Provides-Extra: {extra}" for extra in package.extras]
    lines += [f"Requires-Dist: {text}" for text in package.requires]
    about = f"{as_file}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{as_file}-{version}-{_BEFORE_ALL_OTHERS}-{tag}.whl", "w") as wheel:
        wheel.writestr(f"{about}/METADATA", "\n".join(lines) + "\n")
        wheel.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{about}/RECORD", "")


def _is_version(text: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        Version(text)
    except InvalidVersion:
        return False
    return True
