"""What nodes are lent to make links by: all that is imported of it, and little else; here, none of it is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.errors import ClusterError
from lab.features.faults import target as engine_library
from lab.features.faults.on_node import actions as node_library
from lab.features.faults.target import library
from tests.golden import golden

ROOT = Path(__file__).parents[3]
LENT = """
import json, sys
sys.path = [path for path in sys.path if "site-packages" not in path]
from lab.features.faults.on_node import actions as library
assert not library.lenders
library.apply_library(None, {"files": json.load(sys.stdin)})
assert library.lenders
from lab.features.faults.on_node import links
names = [name for name in sys.modules if name.partition(".")[0] == library.LIBRARY]
print(json.dumps(sorted({sys.modules[name].__spec__.origin or "" for name in names})))
"""


def test_what_is_lent_is_enough_for_links_and_nothing_else_is_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LENT], input=json.dumps(library()), capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    origins = [origin for origin in json.loads(done.stdout) if origin]
    assert origins
    assert all(origin.startswith(f"<lent>/{node_library.LIBRARY}/") for origin in origins)


def test_every_part_that_is_lent_exists_and_all_together_are_small() -> None:
    files = library()
    for part in engine_library.LIBRARY_PARTS:
        pattern = f"{node_library.LIBRARY}/{part}"
        assert any(Path(path).match(pattern) for path in files), part
    assert f"{node_library.LIBRARY}/__init__.py" not in files
    assert sum(map(len, files.values())) < 500_000


def test_reading_it_imports_none_of_it() -> None:
    program = (
        "import sys, lab.cli.main, lab.features.faults.fault, lab.features.faults.injection\n"
        "from lab.features.faults.kinds import fault_kinds\n"
        "from lab.features.faults.target import library\nfault_kinds(), library()\n"
        f"print(sorted(name for name in sys.modules if name.startswith({node_library.LIBRARY!r})))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


def test_without_it_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    library.cache_clear()
    monkeypatch.setattr(engine_library, "find_spec", lambda _: None)
    with pytest.raises(ClusterError, match=golden(1)):
        library()
    library.cache_clear()
