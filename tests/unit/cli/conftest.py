"""The command line in this process, on the engine of whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.cli.main import main
from tests.unit.fake_engine import FakeEngine


@pytest.fixture
def lab(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Gives a command; returns its exit code, and what it wrote to standard output and to standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call
