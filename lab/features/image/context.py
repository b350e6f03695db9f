"""What is sent to the engine to build the node image: Dockerfile, sources, wheels if any, build arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.errors import ImageError
from lab.feature import bundled
from lab.node.recorder import build

BASE_VARIABLE = "LAB_IMAGE_BASE"
BUILD_BASE_VARIABLE = "LAB_IMAGE_BUILD_BASE"
WHEELS_VARIABLE = "LAB_IMAGE_WHEELS"
PIP_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")
"""Environment variables of pip that are passed to the build."""

_RECORDER = "lab/node/recorder"
"""Folder of the recorder in the build context, as in a checkout: the Dockerfile is built by hand there too."""
_MPI_FILES = ("pyproject.toml", "README.md", "torch_mpi/*.py", "torch_mpi/py.typed")
"""What makes the wheel of the package in mpi/."""
_CHUNK_BYTES = 1 << 20
_REPORT_BYTES = 16 << 20
_TORCH_WHEEL = re.compile(r"^torch-(\d[^-+]*)(?:\+[^-]*)?-")


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """One build, fully decided."""

    dockerfile: Path
    sources: Mapping[str, Path]
    """The recorder's C++ with what compiles it, and the package in mpi/, by name in the build context."""
    wheels: tuple[Path, ...]
    """Wheels to install from, sorted by name; empty: the package index is used."""
    build_args: Mapping[str, str]
    """The Dockerfile's ARGs; one that is not named keeps the Dockerfile's default."""

    @property
    def upload_bytes(self) -> int:
        """Roughly how much is sent to the engine."""
        return sum(path.stat().st_size for path in (self.dockerfile, *self.sources.values(), *self.wheels))

    @property
    def recipe(self) -> str:
        """A fingerprint of what goes into the image: two builds with the same one make the same image.

        Wheels count by name and size; a base image counts by its name.
        """
        import hashlib

        lines = [f"{name}={value}" for name, value in sorted(self.build_args.items()) if not name.startswith("PIP_")]
        lines += [f"{path.name} {path.stat().st_size}" for path in self.wheels]
        read = (path.read_bytes() for path in (self.dockerfile, *self.sources.values()))
        digest = hashlib.sha256(b"".join(read))
        digest.update("\n".join(lines).encode())
        return digest.hexdigest()[:16]

    def tar(self, on_sent: Callable[[int], None] = lambda _: None) -> Iterator[bytes]:
        """Yields the context as a tar archive, by the megabyte; `on_sent` is told the bytes so far, now and then."""
        import tarfile

        folder = tarfile.TarInfo("wheels")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        yield folder.tobuf(tarfile.GNU_FORMAT)
        sent = reported = 0
        members = [("Dockerfile", self.dockerfile)]
        members += self.sources.items()
        members += [(f"wheels/{path.name}", path) for path in self.wheels]
        for name, path in members:
            member = tarfile.TarInfo(name)
            member.mode = 0o644  # and mtime 0: the engine's cache must not depend on when a wheel was downloaded
            with path.open("rb") as file:
                member.size = os.fstat(file.fileno()).st_size
                yield member.tobuf(tarfile.GNU_FORMAT)
                while chunk := file.read(_CHUNK_BYTES):
                    yield chunk
                    sent += len(chunk)
                    if sent - reported >= _REPORT_BYTES:
                        on_sent(sent)
                        reported = sent
            yield b"\0" * (-member.size % tarfile.BLOCKSIZE)
        yield b"\0" * (2 * tarfile.BLOCKSIZE)


def plan_build(
    *,
    base: str | None = None,
    build_base: str | None = None,
    wheels: Path | None = None,
    index_url: str | None = None,
    extra_index_url: str | None = None,
    torch: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> BuildContext:
    """Decides a build from what was asked for, the environment and what the folder of wheels holds.

    Args:
        base: base image; None: `LAB_IMAGE_BASE`, else the Dockerfile's own.
        build_base: the same with g++ and Python's headers; None: `LAB_IMAGE_BUILD_BASE`, else the base image, where the
            build installs them if apt works.
        wheels: folder with wheels of torch, numpy and what they need; None: `LAB_IMAGE_WHEELS`, else the index is used.
        index_url: package index; None: `PIP_INDEX_URL`, else pip's own.
        extra_index_url: further package index; None: `PIP_EXTRA_INDEX_URL`.
        torch: version of torch; None: the one among the wheels, else the Dockerfile's own.
        environ: where the variables are looked up.
    """
    if wheels is None and (folder := environ.get(WHEELS_VARIABLE)):
        wheels = Path(folder)
    found = _find_wheels(wheels) if wheels is not None else ()
    if found and torch is None:
        torch = _torch_version(found)
    args = {
        "BASE": base or environ.get(BASE_VARIABLE),
        "BUILD_BASE": build_base or environ.get(BUILD_BASE_VARIABLE),
        "TORCH": torch,
    }
    args |= {name: environ.get(name) for name in PIP_VARIABLES}
    args |= {name: url for name, url in zip(PIP_VARIABLES, (index_url, extra_index_url), strict=False) if url}
    given = {name: value for name, value in args.items() if value}
    return BuildContext(dockerfile=find_dockerfile(), sources=_find_sources(), wheels=found, build_args=given)


def find_dockerfile() -> Path:
    """Returns the Dockerfile of the node image."""
    path = bundled("Dockerfile")
    if path.is_file():
        return path
    raise ImageError(
        f"the Dockerfile of the node image is missing: there is no {path}",
        "this installation of the lab is incomplete: install it again",
    )


def _find_sources() -> dict[str, Path]:
    recorder = sorted(map(Path, [build.__file__, *build.sources()]))
    package = bundled("mpi")
    mpi = sorted(path for pattern in _MPI_FILES for path in package.glob(pattern))
    return {f"{_RECORDER}/{path.name}": path for path in recorder} | {
        f"mpi/{path.relative_to(package).as_posix()}": path for path in mpi
    }


def _find_wheels(folder: Path) -> tuple[Path, ...]:
    hint = "fill it with `pip download -d DIR torch==VERSION numpy` on a machine with an index (docs/air-gapped.md)"
    if not folder.is_dir():
        raise ImageError(f"the folder of wheels {folder} does not exist", hint)
    found = tuple(sorted(path for path in folder.iterdir() if path.suffix == ".whl" and path.is_file()))
    for package in ("torch", "numpy"):
        if not any(path.name.startswith(f"{package}-") for path in found):
            raise ImageError(f"the folder of wheels {folder} holds no wheel of {package}", hint)
    return found


def _torch_version(wheels: tuple[Path, ...]) -> str:
    versions = {match[1] for path in wheels if (match := _TORCH_WHEEL.match(path.name))}
    if len(versions) != 1:
        listed = ", ".join(sorted(versions)) or "none"
        raise ImageError(f"cannot choose among several versions of torch in {wheels[0].parent}: {listed}", "name one")
    return versions.pop()
