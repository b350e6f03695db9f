"""The gate before each call of a run that is watched step by step."""

from __future__ import annotations

import os
import threading

from lab.features.watch.on_node import Gate


def test_a_gate_that_nobody_closed_lets_all_pass():
    Gate().wait(1)


def test_a_call_waits_until_it_is_let_go_and_earlier_ones_are_too(pipe: tuple[int, int]):
    gate = Gate()
    gate.close(pipe[0])
    os.write(pipe[1], b"2\n")
    gate.wait(2)
    gate.wait(1)
    passed = threading.Event()
    thread = threading.Thread(target=lambda: (gate.wait(3), passed.set()))
    thread.start()
    os.write(pipe[1], b"2\n1\n")
    assert not passed.is_set()
    os.write(pipe[1], b"3")  # half a line says nothing yet
    os.write(pipe[1], b"\n")
    thread.join(10)
    assert passed.is_set()


def test_where_the_agent_is_gone_everything_passes(pipe: tuple[int, int]):
    gate = Gate()
    gate.close(pipe[0])
    os.close(pipe[1])
    gate.wait(1)
    assert not gate.closed


def test_a_script_that_closes_the_pipe_is_not_held(pipe: tuple[int, int]):
    gate = Gate()
    gate.close(pipe[0])
    os.close(pipe[0])
    gate.wait(1)
    gate.wait(2)


def test_what_is_no_number_is_passed_over(pipe: tuple[int, int]):
    gate = Gate()
    gate.close(pipe[0])
    os.write(pipe[1], b"\n-1\nx\n7\n")
    gate.wait(7)
