"""`lab image build`: build the image of the nodes."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from lab.cli import arguments as shared
from lab.cli.progress import ProgressDisplay
from lab.engine.image.image import DEFAULT_IMAGE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="build")
    build = actions.add_parser("build", help="build it")
    build.add_argument("--base", help="image to build on, with Python >= 3.9 (default: a slim Python image)")
    build.add_argument("--build-base", help="the same with g++ and Python's headers, where apt cannot fetch them")
    build.add_argument(
        "--wheels", type=Path, metavar="FOLDER", help="install torch from these wheels, without a network"
    )
    build.add_argument("--torch", metavar="VERSION", help="version of torch")
    build.add_argument("--index-url", help="package index to install from")
    build.add_argument("--extra-index-url", help="another package index")
    build.add_argument("--tag", default=DEFAULT_IMAGE, help=f"name of the image (default: {DEFAULT_IMAGE})")
    build.add_argument("--no-cache", action="store_true", help="build every step again")
    shared.add_json(build)


def run(arguments: argparse.Namespace) -> int:
    """Build it, with progress."""
    from lab.engine.docker.connection import open_client
    from lab.engine.image.context import plan_build
    from lab.engine.image.image import build_image

    asked = ("base", "build_base", "wheels", "torch", "index_url", "extra_index_url")
    context = plan_build(**{name: getattr(arguments, name) for name in asked})
    with ProgressDisplay(sys.stderr, quiet=arguments.json) as progress:
        info = build_image(
            open_client(),
            context,
            tag=arguments.tag,
            no_cache=arguments.no_cache,
            on_progress=lambda step: progress.announce(
                f"[{step.step}/{step.total}] {step.text}" if step.total else step.text
            ),
        )
    print(json.dumps(asdict(info), default=str) if arguments.json else f"built {arguments.tag}")
    return 0
