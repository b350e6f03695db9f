"""`lab cp`: copy files and folders between this machine and a running node.

Relative paths in a node start in the folder that all nodes share. A target that is empty or ends with / is a folder
to copy into. On the local engine, paths in a node are those of this machine.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path, PurePosixPath

from lab.cli import arguments as shared
from lab.cli.cmd_exec import find_node
from lab.cluster import Cluster
from lab.engine.protocol import FileAccess, require_capability
from lab.errors import UsageError
from lab.features.copy.archive import LIMIT_BYTES, pack_tar, unpack_tar
from lab.node.messages.agent import FIRST_UID
from lab.node.users import GROUP
from lab.plan.cluster import ClusterInfo
from lab.words import clip_end

_MOST_LISTED = 5
_LONGEST = 200
_IN_NODE = re.compile(r"(node[0-9]+|[0-9]+):(.*)", re.DOTALL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lab cp [options] NODE:PATH PATH  |  lab cp [options] PATH NODE:PATH"
    parser.add_argument("source", help="what to copy: PATH here, or NODE:PATH")
    parser.add_argument("target", help="where to copy it: NODE:PATH, or PATH here")
    about = "copy at most this much (default: 1GiB); never more than the free space on this machine"
    shared.add_options(
        parser, "--max-size", dest="most_bytes", type=shared.size, default=LIMIT_BYTES, metavar="SIZE", help=about
    )
    shared.add_options(parser, "--name", "--engine")


def run(arguments: argparse.Namespace) -> int:
    """Copy, and report entries that were left out."""
    source, target = _IN_NODE.fullmatch(arguments.source), _IN_NODE.fullmatch(arguments.target)
    if (source is None) == (target is None):
        raise UsageError(
            f"one of {arguments.source} and {arguments.target} has to be in a node, and the other on this machine",
            "name a path in a node as NODE:PATH, such as node0:model.pt",
        )
    cluster = Cluster(name=arguments.name, engine=arguments.engine)
    info = cluster.existing()
    if source is not None:
        left_out = _copy_from(cluster, info, source[1], source[2], arguments.target, arguments.most_bytes)
    else:
        assert target is not None
        left_out = _copy_to(cluster, info, Path(arguments.source), target[1], target[2], arguments.most_bytes)
    if left_out:
        others = f" and {len(left_out) - _MOST_LISTED} more" if len(left_out) > _MOST_LISTED else ""
        names = ", ".join(" ".join(clip_end(name, _LONGEST).split()) for name in left_out[:_MOST_LISTED])
        why = "because they are neither files nor folders, or have no path below the copy"
        shared.print_sanitized(f"left out, {why}: {names}{others}")
    return 0


def _copy_from(cluster: Cluster, info: ClusterInfo, node: str, path: str, target: str, most_bytes: int) -> list[str]:
    there, here = PurePosixPath(info.shared, path), Path(target)
    if target.endswith("/") or here.is_dir():
        here /= there.name
    archive = require_capability(cluster.engine, FileAccess).read_files(find_node(info, node), str(there))
    return unpack_tar(archive, here, most_bytes=most_bytes)


def _copy_to(cluster: Cluster, info: ClusterInfo, source: Path, node: str, path: str, most_bytes: int) -> list[str]:
    left_out: list[str] = []
    there = PurePosixPath(info.shared, path)
    if not path or path.endswith("/"):
        there /= source.resolve().name
    archive = pack_tar(source, there.name, (FIRST_UID, GROUP), most_bytes=most_bytes, left_out=left_out)
    require_capability(cluster.engine, FileAccess).write_files(find_node(info, node), str(there), archive)
    return left_out
