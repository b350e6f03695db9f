"""What a zygote is asked and answers, on a stream that others read too."""

from __future__ import annotations

from lab.features.zygote.on_node.entering import Enter, Entered
from lab.node.messages.wire import LineReader, Malformed, encode_message


def test_messages_arrive_in_whatever_pieces_and_what_is_none_is_skipped():
    asked = [Enter(12, "c" * 64), Enter(13, "d" * 64)]
    data = b"noise\n" + encode_message(asked[0]) + b'{"pid": 1}\n[]\n' + encode_message(asked[1])
    for size in (1, 7, len(data)):
        reader = LineReader()
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        messages = [message for piece in pieces for message in reader.feed(piece)]
        assert [message for message in messages if not isinstance(message, Malformed)] == asked


def test_an_answer_without_a_problem_says_that_the_agent_is_there():
    assert list(LineReader().feed(encode_message(Entered("a")))) == [Entered("a", "")]
