"""What mpirun starts where."""

from __future__ import annotations

from typing import Any

import pytest

from lab.features.launchers.launchers import MpirunLauncher as Launcher
from lab.spec.launching import Launching, Layout

ASKED = "HYDRA_LAUNCH: /opt/bin/hydra_pmi_proxy --control-port node0:4711 --pgid 0 --proxy-id 2 "


def layout(**more: Any) -> Layout:
    said = {"env": {"A": "1"}, "argv": ("train.py", "--lr", "1"), **more}
    return Layout(
        run="r",
        addresses=("node0", "node1", "node2"),
        nproc_per_node=2,
        port=1,
        settings=Launching(name="mpirun"),
        **said,
    )


def test_mpiexec_is_started_on_the_first_node_and_fills_one_node_after_the_other():
    (starter,) = Launcher().starters(layout())
    words = " ".join(starter.argv)
    assert starter.node == "node0"
    assert "mpiexec -launcher manual" in words
    assert "-hosts node0:2,node1:2,node2:2" in words
    assert "-n 6" in words
    assert words.endswith("{python} train.py --lr 1")
    assert starter.env["A"] == "1"


def test_a_proxy_is_started_on_the_node_whose_number_it_has():
    (starter,) = Launcher().starters(layout())
    proxy = Launcher().find_requested_starter(starter, ASKED)
    assert proxy is not None
    assert (proxy.node, proxy.argv[0], proxy.argv[-1]) == ("node2", "/opt/bin/hydra_pmi_proxy", "2")
    assert proxy.env == starter.env


@pytest.mark.parametrize(
    "line",
    [
        "HYDRA_LAUNCH_END",
        "hello",
        "",
        "HYDRA_LAUNCH: ",
        ASKED.replace("hydra_pmi_proxy", "rm"),
        ASKED.replace("--proxy-id 2", ""),
        ASKED.replace("--proxy-id 2", "--proxy-id x"),
        "HYDRA_LAUNCH: 'unfinished",
    ],
)
def test_any_other_line_asks_for_nothing(line: str):
    (starter,) = Launcher().starters(layout())
    assert Launcher().find_requested_starter(starter, line) is None


def test_what_the_workers_import_is_asked_for_where_the_backend_is_mpi():
    assert Launcher().starters(layout())[0].modules == ()
    assert "mpi4py" in Launcher().starters(layout(env={"LAB_BACKEND": "mpi"}))[0].modules
