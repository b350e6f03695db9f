"""Files that are copied into a node: the agent, and what `import lab` gives a script there."""

from __future__ import annotations

import io
import shutil
import sys
import tarfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from importlib.util import cache_from_source
from pathlib import Path, PurePosixPath

from lab.engine import boot
from lab.feature import list_features

_SHIM = '''"""What `import lab` gives a script inside a node."""

from labnode.node.rank.note import note as note
'''
_SUFFIXES = (".py", ".cpp", ".hpp")
"""A node needs the C++ only as text, to check that a compiled recorder has this version."""


def node_files() -> dict[str, bytes]:
    """Return file contents by path below the import root: `lab/node` as `labnode/node`, and parts of features."""
    parts, shim = _parts()
    packages = {"labnode", *(str(folder) for part in parts for folder in PurePosixPath(part).parents[:-1])}
    contents = {f"{package}/__init__.py": b"" for package in sorted(packages)}
    contents |= {path: source.read_bytes() for path, source in _list_sources(parts)}
    return {**contents, "lab/__init__.py": shim.encode()}


def _parts() -> tuple[dict[str, Path], str]:
    """Return the folders whose files nodes get, by their path there, and the text of the nodes' module `lab`."""
    parts, shim = {"labnode/node": Path(__file__).parent.parent / "node"}, _SHIM
    for feature in list_features():
        if feature.on_node:
            parts[f"labnode/features/{feature.name}/on_node"] = Path(str(files(feature.on_node)))
            for name, entry in feature.exports.items():
                module = entry.partition(":")[0]
                if module.startswith(f"{feature.on_node}."):  # scripts can import it too
                    there = module.replace(feature.on_node, f"labnode.features.{feature.name}.on_node")
                    shim += f"from {there} import {name} as {name}\n"
    return parts, shim


def _list_sources(parts: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    for part, folder in parts.items():
        for source in sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES):
            yield f"{part}/{source.relative_to(folder).as_posix()}", source


def make_tar(files: Mapping[str, bytes]) -> bytes:
    """Return an uncompressed tar of files.

    Args:
        files: their contents by path.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


@lru_cache(maxsize=1)
def initial_input() -> bytes:
    """Return the first input of an agent on standard streams: the boot program, and a tar of the agent's files."""
    return prefix_length(Path(boot.__file__).read_bytes()) + prefix_length(make_tar(node_files()))


def prefix_length(content: bytes) -> bytes:
    """Return content with its length in front, as the boot program reads it."""
    return b"%*d%b" % (boot.HEADER_BYTES, len(content), content)


def write_node_files(folder: Path) -> None:
    """Write the files below a folder, with what this Python has compiled of them, so that no node compiles it again."""
    for path, content in node_files().items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    for path, source in _list_sources(_parts()[0]):
        target, compiled = folder / path, Path(cache_from_source(str(source)))
        if compiled.exists() and sys.pycache_prefix is None:
            copy = Path(cache_from_source(str(target)))
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(compiled.read_bytes())
            shutil.copystat(source, target)  # it is valid for a source of that time
