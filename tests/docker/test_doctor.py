"""`lab doctor` looks into the image of the nodes."""

from __future__ import annotations

import json

import pytest

from lab.cli.main import main

pytestmark = pytest.mark.docker


def test_doctor_finds_the_compiled_recorder_and_what_links_can_do(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--engine", "docker", "--json"])
    checks = {one["what"]: one for one in json.loads(capsys.readouterr().out)}
    assert "content" not in checks, checks["content"]
    assert checks["recorder"]["level"] == "ok"
    assert {"htb", "netem", "nf_tables"} <= checks.keys()
