"""Messages: what is sent arrives as it was, and what is no message is refused with a reason."""

from __future__ import annotations

import json

import pytest

from lab.node.agent import Agent
from lab.node.messages import wire
from lab.node.messages.agent import (
    EVERY_RANK,
    PROTOCOL,
    RUN_ON,
    ActionRequest,
    ActionResult,
    Breakpoint,
    Busy,
    Check,
    Claim,
    Config,
    Content,
    Exited,
    Finish,
    Folder,
    Follow,
    Hello,
    Input,
    Lacks,
    Limited,
    Message,
    Note,
    Output,
    Piece,
    Prepare,
    Reached,
    Ready,
    Refused,
    Release,
    Store,
    Trace,
    Window,
    WorkerStart,
)  # fmt: skip
from lab.node.messages.typed import Misfit, read_typed
from tests.golden import golden

MESSAGES = [
    Hello(),
    Claim("r", "me", 60.0, 1000, 1000, cold=True, trace=True, trace_values=4),
    Claim("r", "me", 60.0, output_bytes=5),
    Limited(2.0, "node0", "r", None, "processes", 100, 7),
    Content("r", b"\x00\xff\xfe", last=True),
    Folder("r", "/f", "t", "b", "f/1/aa/x", ("y", "\udcff")),
    Lacks("r", "1:2", ("aa", "bb"), everything=True),
    Prepare("r", (WorkerStart(0, 0, {"RANK": "0"}, ["a.py", "é"]), WorkerStart(1, 1, {}, ["a.py"])), Store("n", 1, 2)),
    Prepare("r", ()),
    Follow("r", step=True),
    Release("r", EVERY_RANK, "step", str(RUN_ON)),
    Check("r", "c.py:f", [{"rank": 0, "log": "x"}], {}),
    Ready("node0", "2.13"),
    Busy("r", "s", "eve", 1.5),
    Output("r", 0, 1, 1.5, "ü\n".encode()),
    Output("r", 0, 2, 2, b"half \xc3"),
    Trace("r", 3, b'{"k":"start"}\n'),
    Note(1, 2.0, "node0", "r", name="loss", value={"a": [1, None, "nan"]}),
    Exited(1, 2.0, code=None, signal="SIGKILL", raised=1.0, error="\udcff"),
    Input("r", 0, b"n\xff\r", last=True),
    Window("r", 1, 24, 80),
    Breakpoint(1, 2.0, "node0", "r", at="a.py:3"),
    ActionRequest("1", "links", {"10.0.0.2": {"rate": 1e8}}),
    ActionResult("1", {"asked": [1, None]}, ""),
    Release("r", 1, "hold", "{}"),
    Reached(1, 2.0, "node0", "r", hold=7, heals=True, call=3, value=0.5),
    Prepare("r", (), triggers=({"trigger": 0, "rank": 1, "op": "all_reduce", "count": 3, "edge": "after"},)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    assert wire.LineReader().feed(wire.encode_message(message)) == [message]


def test_messages_are_put_together_from_any_pieces() -> None:
    data = b"".join(map(wire.encode_message, MESSAGES))
    reader = wire.LineReader()
    assert [message for at in range(0, len(data), 7) for message in reader.feed(data[at : at + 7])] == MESSAGES


def test_whoever_attaches_in_the_middle_of_a_line_is_in_step_at_the_next() -> None:
    data = wire.encode_message(MESSAGES[3])[20:] + b"\xff[1]\n5\n" + wire.encode_message(Hello())
    assert list(wire.LineReader().feed(data)) == [Hello()]


def test_no_end_of_a_message_with_data_is_a_message() -> None:
    forged = wire.encode_message(Ready("evil", "9"))
    sent = wire.encode_message(Piece("r", "a", forged * 3 + b"\xfa" + forged + forged[:-1], last=True))
    for begin in range(1, len(sent)):
        assert wire.LineReader().feed(sent[begin:] + wire.encode_message(Hello())) == [Hello()], begin


@pytest.mark.parametrize("data", [b"", b"\n", b"\xfa\n\xfa", b"\n" * 9, bytes(range(256)) * 3])
def test_any_data_arrives_in_any_chunks(data: bytes) -> None:
    messages = [Piece("r", "a", data, last=False), Hello(), Piece("r", "b", data, last=True)]
    sent = b"".join(map(wire.encode_message, messages))
    for size in (1, 5, len(sent)):
        reader = wire.LineReader()
        assert [one for at in range(0, len(sent), size) for one in reader.feed(sent[at : at + size])] == messages


@pytest.mark.parametrize("size", [-5, 0, 1, True, 1e9, "9", None])
def test_an_impossible_size_of_data_is_refused(size: object) -> None:
    line = json.dumps({"is": "content", "run": "r", "data": size}).encode() + b"\n"
    refused, hello = wire.LineReader().feed(line + wire.encode_message(Hello()))
    assert isinstance(refused, wire.Malformed)
    assert hello == Hello()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({}, "is not a kind of message; it is of another version of the lab"),
        ({"is": "__init__"}, "'__init__' is not a kind of message"),
        ({"op": "claim", "run": "r"}, "is not a kind of message"),
        ({"is": "go"}, "go: run is missing"),
        ({"is": "go", "run": 5}, "go: run: 5 is not text"),
        ({"is": "stop", "run": "r", "hard": 1}, "stop: hard: 1 is not true or false"),
        ({"is": "content", "run": "r", "data": "%", "last": True}, "content: data: '%' is not bytes"),
        ({"is": "prepare", "run": "r", "workers": [{"rank": 0}]}, "prepare: workers: item 0: local_rank is missing"),
        ({"is": "exited", "rank": True, "time": 0}, "exited: rank: True is not a whole number"),
        ({"is": "exited", "rank": 1, "time": float("nan")}, "exited: time: nan is not a number"),
        ({"is": "hello"}, f"hello speaks version None of the protocol, not {PROTOCOL}"),
        ({"is": "claim", "run": "r", "version": 1}, f"claim speaks version 1 of the protocol, not {PROTOCOL}"),
    ],
)
def test_what_is_no_message_is_refused_with_a_reason(data: object, reason: str) -> None:
    found = wire.decode_message(json.dumps(data).encode())
    assert isinstance(found, wire.Malformed)
    assert reason in found.reason


def test_a_misfit_is_left_out_where_that_is_asked_for() -> None:
    data = {"rank": 1, "time": 2.0, "code": "x", "error": 5}
    assert read_typed(Exited, data, lenient=True) == Exited(1, 2.0)
    with pytest.raises(Misfit, match=golden(1)):
        read_typed(Exited, data)
    with pytest.raises(Misfit, match="time is missing"):
        read_typed(Exited, {"rank": 1}, lenient=True)


class Listener:
    """The other end of an agent's connection."""

    def __init__(self) -> None:
        self.heard: list[Message] = []

    def send(self, message: Message) -> None:
        self.heard.append(message)


@pytest.mark.features
def test_an_agent_has_an_action_for_every_request_and_refuses_the_rest(tmp_path) -> None:
    agent = Agent(Config("node0", str(tmp_path), container=False, import_root=""))
    client = Listener()
    agent.handle(client, Finish("r"))  # type: ignore[arg-type]
    agent.handle(client, Ready("node1", "2"))  # type: ignore[arg-type]
    agent.handle(client, wire.Malformed("r", "go", "why"))  # type: ignore[arg-type]
    assert client.heard == [
        Refused("r", "finish", golden(1)),
        Refused("", "ready", golden(2)),
        Refused("r", "go", "why"),
    ]
