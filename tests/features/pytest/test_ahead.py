from __future__ import annotations

from pathlib import Path

import pytest

from lab.features.pytest.session import shape_ahead


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("@lab.distributed(nodes=3)\ndef test_a(): ...", {"nodes": 3}),
        ("on_ranks = lab.distributed(nodes=2, engine='docker', timeout_s=5)", {"nodes": 2, "engine": "docker"}),
        ("@lab.distributed(nodes=N)\ndef test_a(): ...", None),
        ("@lab.distributed(nodes='3')\ndef test_a(): ...", None),
        ("@lab.distributed(nodes=3, image='x')\ndef test_a(): ...", None),
        ("@lab.distributed(engine='odd')\ndef test_a(): ...", None),
        ("pytestmark = pytest.mark.lab(nodes=2)\n@lab.distributed(timeout_s=3)\ndef test_a(): ...", None),
        ("@lab.distributed(nodes=\n", None),
        ("def test_a(): ...", None),
        ("# lab.distributed", None),
    ],
)
def test_the_shape_of_the_first_cluster_is_read_where_it_is_plain(
    tmp_path: Path, text: str, shape: dict[str, object] | None
) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(text)
    assert shape_ahead(path) == shape
    assert shape_ahead(tmp_path / "missing.py") is None
