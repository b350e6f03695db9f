"""What a starter needs of its node is looked for before anything starts."""

from __future__ import annotations

import os
import sys

import pytest

from lab.node import launch
from lab.node.messages.agent import PYTHON, STARTER, WorkerStart
from tests.golden import golden


def start(program: str, *modules: str) -> WorkerStart:
    return WorkerStart(STARTER, STARTER, {}, [program], modules=modules)


def test_a_program_that_is_not_there_is_refused_by_its_name():
    with pytest.raises(launch.NodeLacks, match=golden(1)):
        launch.check_starter(start("no-such-program"))


def test_what_is_installed_beside_the_python_of_the_node_is_found_without_a_path(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    launch.check_starter(start(os.path.basename(sys.executable)))


def test_a_module_that_its_workers_need_is_refused_by_its_name():
    launch.check_starter(start(PYTHON, "json"))
    with pytest.raises(launch.NodeLacks, match=golden(1)):
        launch.check_starter(start(PYTHON, "json", "no_such_module"))
