"""`lab image`: build the image of the nodes, or one with packages; list and remove images with packages.

Examples:
  lab image build                                     the image of the nodes, from the lab's Dockerfile
  lab image build --requirements requirements.txt     add packages to it, as `lab up --requirements` does
  lab image list                                      images and environments with packages
  lab image prune                                     remove images and environments that no cluster uses

The local engine has no images: it installs packages into a virtual environment.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from lab.cli import arguments as shared
from lab.engine.docker.image import DEFAULT_IMAGE
from lab.engine.packages import PackageStore, Prepared, package_store
from lab.engine.protocol import ImageStore
from lab.engine.select import AUTO, available_engines, engine_class, select_engine
from lab.errors import ClusterUnfit, UsageError
from lab.report.style import Style, table_text
from lab.words import format_bytes

_OF_THE_NODE_IMAGE = ("base", "build_base", "wheels", "torch")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="build | list | prune")
    build = actions.add_parser("build", help="build the image of the nodes, or one with packages")
    build.add_argument("--base", help="image to build on, with Python >= 3.9 (default: a slim Python image)")
    build.add_argument("--build-base", help="image with g++ and Python's headers, where apt has no network")
    build.add_argument(
        "--wheels", type=Path, metavar="FOLDER", help="install torch from these wheels, without a network"
    )
    build.add_argument("--torch", metavar="VERSION", help="version of torch")
    build.add_argument("--no-cache", action="store_true", help="build every step again, fetch every package again")
    shared.add_options(build, "--requirements")
    build.add_argument("--image", help="with --requirements: the image to extend (default: the lab's own)")
    list_ = actions.add_parser("list", help="list images and virtual environments with packages")
    for action in (build, list_, actions.add_parser("prune", help="remove what no cluster uses")):
        shared.add_options(action, "--engine", help="engine of the images (default: auto)")
        shared.add_options(action, "--json")


def run(arguments: argparse.Namespace) -> int:
    """Run the action."""
    if arguments.action == "build":
        return _build_packages(arguments) if arguments.requirements else _build(arguments)
    return _list(arguments) if arguments.action == "list" else _prune(arguments)


def _build(arguments: argparse.Namespace) -> int:
    from lab.engine.docker.connection import Connection
    from lab.features.image.make import build_image, plan_build

    if arguments.engine != AUTO and not issubclass(engine_class(arguments.engine) or object, ImageStore):
        hint = "add --requirements to create a virtual environment"
        raise UsageError(f"the {arguments.engine} engine has no images", hint)
    if arguments.image:
        raise UsageError("--image needs --requirements, which extends it", "name a base of the node image with --base")
    context = plan_build(**{name: getattr(arguments, name) for name in _OF_THE_NODE_IMAGE})
    with shared.Progress(quiet=arguments.json) as progress:
        info = build_image(Connection(), context, progress.announce, no_cache=arguments.no_cache)
    return shared.print_answer(arguments, asdict(info), lambda _: f"built {DEFAULT_IMAGE}")


def _build_packages(arguments: argparse.Namespace) -> int:
    """Prepare the packages of `lab up --requirements`."""
    if any(getattr(arguments, name) for name in _OF_THE_NODE_IMAGE):
        hint = "run `lab image build` with those first, then `lab image build --requirements FILE`"
        raise UsageError("--requirements extends the node image, but the other options build it", hint)
    engine, why = select_engine(arguments.engine)
    with shared.Progress(quiet=arguments.json) as progress:
        if why:
            progress.announce(why)
        store, again = package_store(engine), arguments.no_cache
        made = store.prepare(arguments.image, arguments.requirements, announce=progress.announce, again=again)
    return shared.print_answer(arguments, {"name": made}, lambda _: f"ready: {made}")


def _prepared(arguments: argparse.Namespace) -> list[tuple[PackageStore, Prepared]]:
    """Return the images and environments of the selected engines, each once: some engines share them."""
    prepared: dict[str, tuple[PackageStore, Prepared]] = {}
    for engine in available_engines(arguments.engine)[0]:
        with suppress(ClusterUnfit):
            store = package_store(engine)
            for one in store.prepared():
                prepared.setdefault(one.name, (store, one))
    return [*prepared.values()]


def _list(arguments: argparse.Namespace) -> int:
    prepared = [one for _, one in _prepared(arguments)]

    def table(style: Style) -> str:
        if not prepared:
            return "no image and no environment with packages"
        rows = [
            [one.name, one.engine, one.base or "incomplete", format_bytes(one.size_bytes), " ".join(one.requirements)]
            for one in prepared
        ]
        return table_text(["name", "engine", "based on", "size", "requirements"], rows, style)

    return shared.print_answer(arguments, lambda: list(map(asdict, prepared)), table)


def _prune(arguments: argparse.Namespace) -> int:
    done = [(one, store.discard(one)) for store, one in _prepared(arguments)]
    lines = [f"{one.name} stays: {why}" if why else f"removed {one.name}" for one, why in done]
    data = [{**asdict(one), "stays": why} for one, why in done]
    return shared.print_answer(arguments, data, lambda _: "\n".join(lines) or "nothing to remove")
