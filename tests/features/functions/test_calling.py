from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from lab.features.functions.calling import Calls
from lab.features.functions.pack import CallOptions, Packed
from lab.polling import poll_until


class Ranks:
    """A session that notes whether anybody calls while another call is under way."""

    backend, over, unusable_reason = "gloo", False, ""

    def __init__(self) -> None:
        self.packed = Packed("/")
        self.at_once = 0
        self.most_at_once = 0

    def call(self, call: bytes, how: CallOptions) -> list[bytes]:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        poll_until(lambda: self.at_once > 1, limit_s=0.02)
        self.at_once -= 1
        return []

    def show_printed(self) -> None:
        """Nothing was."""


def test_calls_of_several_threads_are_made_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, answers = Ranks(), list[Any]()
    monkeypatch.setattr("lab.features.functions.calling.Session", lambda *_: ranks)
    cluster: Any = Calls()
    cluster.before_use = []
    threads = [
        threading.Thread(target=lambda: answers.append(cluster.call_as(time.sleep, (0,), {}, CallOptions())))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == [[], [], [], []]
    assert ranks.most_at_once == 1
