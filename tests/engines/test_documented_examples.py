"""The Python examples in the README and in docs/python-api.md, run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden import golden

pytestmark = pytest.mark.half

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = {
    f"{page.name}-{number}": block
    for page in (ROOT / "README.md", ROOT / "docs" / "python-api.md")
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
}
EXAMPLES = {
    name: block
    for name, block in WRITTEN.items()
    if not any(other != block and other.startswith(block) for other in WRITTEN.values())
}
"""Those with which no other one begins."""


@pytest.mark.sample(2)  # examples change seldom
@pytest.mark.local_first
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_documentation_runs_as_it_stands(name: str, engine: str, tmp_path: Path) -> None:
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    (tmp_path / "example.py").write_text(EXAMPLES[name], encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if engine == "local":
        environment["DOCKER_HOST"] = f"unix://{tmp_path}/no-such-socket"
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if "result.ranks[1].notes" in EXAMPLES[name]:
        assert golden(1) in done.stdout
        assert "{'received': [10.0]}" in done.stdout
