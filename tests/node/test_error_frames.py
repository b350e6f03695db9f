"""What is left of an error's traceback without the frames of the lab."""

from __future__ import annotations

import gc
import traceback
import weakref

import pytest

from lab.node.rank.note import without_frames


class Held:
    """What a frame holds."""


def inner(held: list[weakref.ref[Held]]) -> None:
    own = Held()
    held.append(weakref.ref(own))
    raise ValueError("broken")


def test_removed_frames_keep_what_they_hold() -> None:
    """Once a GPU has failed, the end of a tensor can abort the process, before anyone has reported the error."""
    held: list[weakref.ref[Held]] = []
    call = compile("inner(held)", "/own/recorder.py", "exec")
    with pytest.raises(ValueError, match="broken") as caught:
        exec(call, {"inner": inner, "held": held})
    error = caught.value
    del caught
    without_frames(error, ("/own/", __file__))

    assert not traceback.extract_tb(error.__traceback__)
    gc.collect()
    assert held[0]() is not None
