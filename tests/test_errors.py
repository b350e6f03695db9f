from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import RecordError, UsageError


def test_an_error_of_the_system_becomes_the_error_that_the_block_names(tmp_path: Path) -> None:
    with pytest.raises(RecordError) as refused, RecordError.on_os_error("cannot read it", "name another"):
        (tmp_path / "absent").read_text()
    assert (refused.value.message, refused.value.hint) == ("cannot read it: No such file or directory", "name another")
    assert isinstance(refused.value.__cause__, FileNotFoundError)


def test_other_errors_stay_as_they_are() -> None:
    with pytest.raises(UsageError, match=r"^no$"), RecordError.on_os_error("cannot read it"):
        raise UsageError("no")
