"""What pytest loads of the lab: its plugin, or nothing where `lab` is a package of somebody else's.

That is so where a repository has a folder `lab` of its own in Python's path. pytest would not start there if it was
told to load the plugin.
"""

from importlib.util import find_spec
from pathlib import Path

_spec = find_spec("lab")  # it is not imported for that
if _spec is not None and any(
    Path(folder, "features", "pytest").is_dir() for folder in _spec.submodule_search_locations or ()
):
    from lab.features.pytest.plugin import *  # noqa: F403
