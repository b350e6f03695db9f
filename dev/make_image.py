"""The work of dev/image: finds a way to make the node image on this machine, and goes it."""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lab.engine.docker.connection import Connection
from lab.engine.docker.image import DEFAULT_IMAGE, ImageInfo, inspect_image
from lab.errors import EngineUnavailable, ImageError, LabError
from lab.features.image.make import (
    BASE_VARIABLE,
    WHEELS_VARIABLE,
    BuildContext,
    build_image,
    find_dockerfile,
    plan_build,
    pull_image,
)

RECIPE_LABEL = "lab.image.recipe"
SUITE = "bookworm"
LOCAL_BASE = f"lab-base:{SUITE}"
LOCAL_BUILD_BASE = f"lab-build-base:{SUITE}"
PACKAGES = "python3,python3-pip,python3-venv,iproute2,ca-certificates"
WHEELS = ("numpy", "mpi4py", "mpich", "hatchling")
"""What the Dockerfile installs beside torch, and what makes a wheel of mpi/."""
BUILD_PACKAGES = f"{PACKAGES},g++,python3-dev"
PLATFORMS = [f"manylinux_2_{minor}_{platform.machine()}" for minor in range(28, 16, -1)]


class Show:
    """Prints a line where a build or a pull takes its next step, and a sign of life every ten seconds."""

    def __init__(self) -> None:
        self.last: tuple[str, float] = ("", 0.0)

    def __call__(self, text: str) -> None:
        """Show one piece of progress, or not."""
        step, then = text.partition(" ")[0], time.monotonic()
        if step != self.last[0] or then - self.last[1] > 10:
            self.last = (step, then)
            print(f"   {text[:120]}", flush=True)


def main() -> int:
    """Make the image; the exit code is 0 if it is there."""
    parser = argparse.ArgumentParser(prog="dev/image")
    parser.add_argument("--force", action="store_true", help="make it even if it is current")
    parser.add_argument("--cache", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        connection = Connection()
    except EngineUnavailable as error:
        print(
            f"dev/image: no Docker engine answers ({error}); as root on Debian, dev/engine starts one", file=sys.stderr
        )
        return 3
    try:
        return make(connection, arguments.cache, force=arguments.force)
    except LabError as error:
        print(f"dev/image: {error}", file=sys.stderr)
        return error.exit_code


def make(connection: Connection, cache: Path, *, force: bool) -> int:
    """Make the image if it is not current."""
    named = bool(os.environ.get(BASE_VARIABLE) or os.environ.get(WHEELS_VARIABLE))
    ways = [plan_build()]
    if not named:
        ways += [
            plan_build(base=base, build_base=build_base, wheels=wheels)
            for wheels in wheel_folder(cache, "*").parent.glob(wheel_folder(cache, "*").name)
            for base, build_base in ((None, None), (LOCAL_BASE, LOCAL_BUILD_BASE))
        ]
    found = inspect_image(connection, DEFAULT_IMAGE)
    made_by = connection.ask("GET", f"/images/{found.id}/json")["Config"]["Labels"].get(RECIPE_LABEL) if found else None
    if found and not force and made_by in set(map(recipe_of, ways)):
        print(f"== the node image {DEFAULT_IMAGE} is current (torch {found.torch}, {found.size_bytes / 1e9:.1f} GB)")
        return 0
    started = time.monotonic()
    if named:
        print(f"== building {DEFAULT_IMAGE} as {BASE_VARIABLE} and {WHEELS_VARIABLE} say")
        made = build(connection, plan_build())
    elif base_is_here(connection):
        print(f"== building {DEFAULT_IMAGE} from {dockerfile_base()} and a package index")
        try:
            made = build(connection, plan_build())
        except ImageError as error:
            print(f"   {error.message.splitlines()[0]}")
            print(f"== building {DEFAULT_IMAGE} from {dockerfile_base()} and wheels downloaded on this machine")
            wheels = download_wheels(connection, dockerfile_base(), cache)
            made = build(connection, plan_build(wheels=wheels))
    else:
        print(f"== building {DEFAULT_IMAGE} without a registry: base by mmdebstrap, wheels downloaded on this machine")
        make_base(connection, LOCAL_BASE, PACKAGES)
        make_base(connection, LOCAL_BUILD_BASE, BUILD_PACKAGES)
        wheels = download_wheels(connection, LOCAL_BASE, cache)
        made = build(connection, plan_build(base=LOCAL_BASE, build_base=LOCAL_BUILD_BASE, wheels=wheels))
    took = time.monotonic() - started
    print(f"== {made.name}: torch {made.torch}, {made.size_bytes / 1e9:.1f} GB, made in {took:.0f} s")
    return 0


def recipe_of(context: BuildContext) -> str:
    """Return a fingerprint of what goes into the image: two builds with the same one make the same image.

    Wheels count by name and size; a base image counts by its name.
    """
    lines = [f"{name}={value}" for name, value in sorted(context.build_args.items()) if not name.startswith("PIP_")]
    lines += [f"{path.name} {path.stat().st_size}" for path in context.wheels]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in (context.dockerfile, *context.sources.values())))
    digest.update("\n".join(lines).encode())
    return digest.hexdigest()[:16]


def build(connection: Connection, context: BuildContext) -> ImageInfo:
    """Build the image and note its recipe in it."""
    return build_image(connection, context, Show(), labels={RECIPE_LABEL: recipe_of(context)})


def dockerfile_base() -> str:
    """Return the base image that the Dockerfile names."""
    return dockerfile_default("BASE")


def pinned_torch() -> str:
    """Return the version of torch that the Dockerfile names."""
    return dockerfile_default("TORCH")


def dockerfile_default(argument: str) -> str:
    """Return the Dockerfile's default for a build argument."""
    found = re.search(rf"^ARG {argument}=(\S+)", find_dockerfile().read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def base_is_here(connection: Connection) -> bool:
    """Tell whether the engine has the Dockerfile's base or gets it from its registry."""
    base = dockerfile_base()
    if inspect_image(connection, base):
        return True
    print(f"== pulling {base}")
    try:
        pull_image(connection, base, Show())
    except ImageError as error:
        print(f"   {error.message}")
        return False
    return True


def make_base(connection: Connection, image: str, packages: str) -> None:
    """Make a minimal Debian with Python, without any registry."""
    if inspect_image(connection, image):
        return
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        raise ImageError(
            "the registry cannot be reached, and a base image of one's own needs root and mmdebstrap",
            "docs/air-gapped.md says how to bring a base image and wheels from elsewhere",
        )
    print(f"   {image} by mmdebstrap: 20 to 40 s")
    with tempfile.TemporaryDirectory() as folder:
        tar = Path(folder, "base.tar")
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", SUITE, str(tar)]
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900)
        if run.returncode:
            raise ImageError(f"mmdebstrap failed with {run.returncode}: {run.stderr.strip()[-500:]}")
        name, tag = image.split(":")
        connection.api.import_image_from_file(str(tar), repository=name, tag=tag)


def wheel_folder(cache: Path, python: str) -> Path:
    """Return where the wheels for a version of Python are kept."""
    return cache / f"wheels-torch-{pinned_torch()}-mpi-python-{python}-{platform.machine()}"


def download_wheels(connection: Connection, base: str, cache: Path) -> Path:
    """Return a folder with wheels that fit the Python of the base image; download them if they are not there."""
    command = ["python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    version = connection.run_container({"Image": base, "Cmd": command})[1].strip()
    folder = wheel_folder(cache, version)
    if folder.is_dir():
        return folder
    print(f"   downloading wheels of torch {pinned_torch()}, {', '.join(WHEELS)} for Python {version}")
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--dest",
        str(partial),
    ]
    if version != f"{sys.version_info[0]}.{sys.version_info[1]}":
        command += ["--python-version", version, "--only-binary=:all:"]
        command += [word for tag in PLATFORMS for word in ("--platform", tag)]
    command += [
        "--constraint",
        str(find_dockerfile().with_name("constraints.txt")),
        f"torch=={pinned_torch()}",
        *WHEELS,
    ]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1800)
    if run.returncode:
        raise ImageError(f"pip download failed: {run.stderr.strip()[-1000:]}", "docs/air-gapped.md")
    partial.rename(folder)
    return folder


if __name__ == "__main__":
    sys.exit(main())
