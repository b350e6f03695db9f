"""The store of a run: an error of its process is the agent's."""

from __future__ import annotations

import os
from typing import Any

import pytest

from lab.node import store
from lab.node.messages.agent import Store
from lab.node.users import User
from tests.golden import golden

NOBODY = User(os.getuid(), os.getgid())


def test_an_error_of_the_stores_process_is_passed_on(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any) -> None:
        raise RuntimeError("no threads are left\nsecond line")

    monkeypatch.setattr(store, "_listen", fail)
    with pytest.raises(store.StoreError) as raised:
        store.start_store(Store("127.0.0.1", 0, 1), NOBODY)
    assert golden(1) in str(raised.value)


def test_a_store_that_is_killed_is_no_store(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "_listen", lambda *_: os._exit(3))
    with pytest.raises(store.StoreError) as raised:
        store.start_store(Store("127.0.0.1", 0, 1), NOBODY)
    assert golden(1) in str(raised.value)
