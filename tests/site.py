"""Builds the site of the docs."""

from __future__ import annotations

import atexit
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def site() -> Path:
    """The built site."""
    return build_site()


@lru_cache(maxsize=1)
def build_site() -> Path:
    """Build the site once for all modules that ask for it; a warning, such as a broken link, ends the build."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tempfile.TemporaryDirectory(prefix="lab-site-")
    atexit.register(folder.cleanup)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("NO_MKDOCS_2_WARNING", "1")
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=folder.name, strict=True)
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    return Path(folder.name)
