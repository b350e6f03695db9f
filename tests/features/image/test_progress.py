"""Reading what the engine says while it builds or pulls."""

from __future__ import annotations

import pytest

from lab.features.image.make import TAIL_LINES, EngineLog
from tests.golden import golden

BUILD = [
    {"stream": "Step 1/4 : FROM base AS build"},
    {"stream": "\n"},
    {"stream": " ---> aaaaaaaaaaaa\n"},
    {"stream": "Step 2/4 : RUN pip   install torch\n"},
    {"stream": " ---> Running in 0123456789ab\n"},
    {"stream": "\x1b[33mCollecting torch\x1b[0m\rCollecting torch 2.13\n"},
    {"stream": " ---> bbbbbbbbbbbb\n"},
    {"stream": "Step 3/4 : FROM base\n"},
    {"stream": " ---> aaaaaaaaaaaa\n"},
    {"stream": "Step 4/4 : COPY --from=build /opt /opt\n"},
    {"stream": " ---> cccccccccccc\n"},
    {"aux": {"ID": "sha256:cccc"}},
]


def read_all(log: EngineLog, events: list[dict]) -> list[str]:
    return [text for event in events for text in log.read(event)]


def test_a_build_is_followed_step_by_step():
    shown = read_all(EngineLog(), BUILD)
    assert shown == [
        f"[1/4] {golden(1)}",
        f"[2/4] {golden(2)}",
        "[2/4] Collecting torch",
        "[2/4] Collecting torch 2.13",
        "[3/4] FROM base",
        f"[4/4] {golden(3)}",
    ]


def test_the_image_of_each_stage_but_the_last_is_remembered():
    log = EngineLog()
    read_all(log, BUILD)
    assert log.stages == ["bbbbbbbbbbbb"]


def test_only_the_last_lines_of_the_output_are_kept():
    log = EngineLog()
    read_all(log, [{"stream": f"line {n}\n"} for n in range(100)])
    assert list(log.tail) == [f"line {n}" for n in range(100 - TAIL_LINES, 100)]


def test_the_engines_error_is_kept_and_not_shown_as_progress():
    log = EngineLog()
    assert log.read({"errorDetail": {"code": 1}, "error": "it broke\n"}) == []
    assert log.error == "it broke"


def test_pulling_the_base_image_is_shown_in_the_step_that_needs_it():
    log = EngineLog()
    log.read({"stream": "Step 2/9 : FROM python\n"})
    assert log.read({"status": "Pulling fs layer", "id": "a", "progressDetail": {}}) == [f"[2/9] {golden(1)}"]


@pytest.mark.parametrize("line", ["STEP 3/9: RUN x", "[1/2] STEP 3/9: RUN x", "Step 3/9 : RUN x"])
def test_steps_of_other_builders_are_understood(line: str):
    assert EngineLog().read({"stream": line}) == ["[3/9] RUN x"]


def test_a_pull_counts_layers_and_bytes():
    log = EngineLog()
    for layer in "ab":
        log.read({"status": "Pulling fs layer", "id": layer, "progressDetail": {}})
    log.read({"status": "Downloading", "id": "a", "progressDetail": {"current": 3_000_000, "total": 10_000_000}})
    log.read({"status": "Already exists", "id": "c", "progressDetail": {}})
    assert log.read(
        {"status": "Downloading", "id": "b", "progressDetail": {"current": 1_000_000, "total": 2_000_000}}
    ) == [golden(1)]
    assert log.read({"status": "Pull complete", "id": "b"}) == [golden(2)]


def test_the_header_and_the_digest_of_a_pull_are_no_progress():
    log = EngineLog()
    assert log.read({"status": "Pulling from library/python", "id": "3.11"}) == []
    assert log.read({"status": "Digest: sha256:00"}) == []
    assert log.read({"error": "manifest unknown"}) == []
    assert log.error == "manifest unknown"
