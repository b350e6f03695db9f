"""The names of backends."""

from __future__ import annotations

import pytest

from lab.errors import UsageError
from lab.spec.keys import check_backend
from tests.golden import golden


def test_a_backend_that_the_lab_does_not_have_is_refused_with_what_was_meant():
    with pytest.raises(UsageError, match=golden(1)):
        check_backend("glo")
