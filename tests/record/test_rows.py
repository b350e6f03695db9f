from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.record.rows import Rows

pytestmark = pytest.mark.unit
UP = b"\x1b[A"


def kept(*pieces: bytes) -> bytes:
    rows = Rows()
    return b"".join([*map(rows.feed, pieces), rows.end()])


def in_pieces(data: bytes, seed: int) -> list[bytes]:
    cuts = sorted(random.Random(seed).sample(range(len(data) + 1), min(len(data), 12)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def bar(percent: int) -> bytes:
    return f"{percent:3}%|{'█' * (percent // 10):10}| {percent}/100".encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"a\n\nb",
        b"no end",
        b"one\r\ntwo\r\n",
        "€\t\x1b[31mred\x1b[0m\n".encode(),
        b"up \x1b[2A and \x1b[A\n",
    ],
)
def test_what_is_not_written_over_is_kept_byte_for_byte(data: bytes) -> None:
    assert all(kept(*in_pieces(data, seed)) == data for seed in range(20))


@pytest.mark.parametrize(
    "data", [bytes(range(256)) * 64, b"\xff\xfe\x00\r\n\x80" * 1000, b"ab\rcd\x00\rx" * 40_000], ids=len
)
def test_what_is_no_text_is_kept_byte_for_byte(data: bytes) -> None:
    assert kept(data) == data
    assert kept(*(data[at : at + 4096] for at in range(0, len(data), 4096))) == data


@pytest.mark.parametrize("seed", range(6))
def test_random_bytes_are_kept_although_short_parts_of_them_look_like_bars(seed: int) -> None:
    random_bytes = random.Random(seed).randbytes
    data = random_bytes(300_000) + b"\na\rb\n10%\r20%\n\x1b[2A\rx\n" + random_bytes(300_000)
    assert kept(*(data[at : at + 65536] for at in range(0, len(data), 65536))) == data
    assert kept(*(data[at : at + 100] for at in range(0, len(data), 100))) == data


def test_bars_after_binary_data_are_kept_once() -> None:
    bars = b"".join(b"\r" + bar(percent) for percent in range(101)) + b"\n"
    data = b"\x00\xff\r\n" * 2000 + b"text\r\n" * 1000
    assert kept(data, b"text\r\n" * 1000, bars) == data + b"text\r\n" * 1000 + bar(100) + b"\n"


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_of_a_bar_its_last_state_is_kept_once(end: bytes) -> None:
    begins_with_a_return = b"".join(b"\r" + bar(percent) for percent in range(101)) + end
    ends_with_a_return = b"".join(bar(percent) + b"\r" for percent in range(101)) + end
    for seed in range(20):
        assert kept(*in_pieces(begins_with_a_return, seed)) == bar(100) + end
        assert kept(*in_pieces(ends_with_a_return, seed)) == bar(100) + end


def test_a_bar_that_is_wiped_leaves_nothing() -> None:
    assert kept(b"\r" + bar(10) + b"\r" + bar(20) + b"\r" + b" " * 30 + b"\r", b"done\n") == b"done\n"
    assert kept(b"\r" + bar(10) + b"\r" + b" " * 30 + b"\r") == b""


def test_bars_one_after_the_other_are_all_kept_in_order_with_what_is_between() -> None:
    data = b"".join(b"\r" + bar(n) + b"\r" + bar(100) + b"\nepoch %d\n" % n for n in range(5)) + b"end\n"
    assert kept(data) == b"".join(bar(100) + b"\nepoch %d\n" % n for n in range(5)) + b"end\n"
    assert kept(*in_pieces(data, 1)) == kept(data)
    alone = b"".join(b"\r" + bar(n) + b"\r" + bar(100 - n) + b"\n" for n in range(30))
    assert kept(alone) == b"".join(bar(100 - n) + b"\n" for n in range(30))


@pytest.mark.parametrize("whole", [True, False])
def test_of_a_bar_below_another_one_no_copies_are_kept(whole: bool) -> None:
    """What tqdm writes for a bar within the loop of another one, that it wipes at its end."""
    writes = [b"\r" + bar(0)]
    for outer in (50, 100):
        for inner in range(0, 101, 10):
            writes += [b"\n", b"\r" + bar(inner), UP]
        writes += [b"\n", b"\r" + b" " * 30 + b"\r", UP, b"\r" + bar(outer)]
    writes += [b"\n", b"done\n"]
    assert kept(*([b"".join(writes)] if whole else writes)) == bar(100) + b"\ndone\n"


def test_what_is_settled_is_given_back_at_once_and_the_rest_is_open() -> None:
    rows = Rows()
    assert rows.feed(b"one\ntwo") == b"one\n"
    assert rows.open == [b"two"]
    assert rows.feed(b" three\r") == b""
    assert rows.feed(b"four") == b""
    assert rows.open == [b"four"]
    assert rows.feed(b"\n\r" + bar(10)) == b""
    assert rows.open == [b"four", bar(10)]
    assert rows.feed(b"\n") == b"four\n"
    assert rows.end() == bar(10) + b"\n"
    assert (rows.open, rows.end()) == ([], b"")


def test_a_row_that_another_stream_interrupts_is_let_go_unless_it_is_written_over() -> None:
    rows = Rows()
    rows.feed(b"loading ")
    assert rows.release_interrupted() == b"loading "
    assert rows.feed(b"done\n") == b"done\n"
    rows.feed(b"\r" + bar(10))
    assert rows.release_interrupted() == b""
    assert rows.feed(b"\r" + bar(20) + b"\nx\n") == bar(20) + b"\nx\n"


def test_a_bar_that_is_left_behind_is_let_go_when_another_stream_goes_on() -> None:
    rows = Rows()
    rows.feed(b"\r" + bar(10) + b"\r" + bar(100) + b"\n")
    assert [rows.release_passed(), rows.release_passed()] == [bar(100) + b"\n", b""]
    rows.feed(b"\r" + bar(10) + b"\n\r" + bar(20))
    assert rows.release_passed() == b""


def test_of_a_row_whose_beginning_was_let_go_the_return_stays() -> None:
    rows = Rows()
    rows.feed(b"10%")
    assert [rows.release_interrupted(), rows.feed(b"\r20%\r30%\nx\n")] == [b"10%", b"\r30%\nx\n"]


def test_what_is_held_has_a_limit() -> None:
    rows = Rows(longest_bytes=1000)
    assert rows.feed(b"x" * 1500) == b"x" * 1500
    assert rows.feed(b"y\n") == b"y\n"
    for percent in range(100):
        assert rows.feed(b"\r" + bar(percent)) == b""
    assert rows.feed(b"\nx\n") == bar(99) + b"\nx\n"
    assert rows.feed(b"\r" + b"z" * 2000 + b"\n") + rows.end() == b"z" * 2000 + b"\n"
    assert len(rows.feed(b"\r1\n" * 100).splitlines()) > 90


@given(st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", UP, b"\x1b[2A", b"a", b" ", b"bc", b"\x00", b"\xff"])))
def test_no_more_is_kept_than_was_written_and_all_of_it_where_nothing_goes_back(parts: list[bytes]) -> None:
    written, result = b"".join(parts), kept(*parts)
    assert len(result) <= len(written)
    if b"\r" not in written:
        assert result == written
