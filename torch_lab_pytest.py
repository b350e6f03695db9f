"""Load the lab's plugin for pytest, or nothing if `lab` is another package.

A repository can have its own folder `lab` in Python's path. pytest would not start there if it had to load the plugin.
"""

from importlib.util import find_spec
from pathlib import Path

_spec = find_spec("lab")  # it is not imported for that
if _spec is not None and any(
    Path(folder, "features", "pytest").is_dir() for folder in _spec.submodule_search_locations or ()
):
    from lab.features.pytest.plugin import *  # noqa: F403
