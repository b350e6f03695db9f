from __future__ import annotations

import pytest

from lab.features.functions.on_node.messages import Pieces, TooLong, pack_piece
from tests.golden import golden


def test_pieces_come_whole_however_they_are_cut() -> None:
    stream = pack_piece(b"C", b"one") + pack_piece(b"V", b"") + pack_piece(b"M", bytes(1000))
    for size in (1, 7, len(stream)):
        pieces = Pieces()
        found = [one for at in range(0, len(stream), size) for one in pieces.feed(stream[at : at + size])]
        assert found == [(b"C", b"one"), (b"V", b""), (b"M", bytes(1000))]


def test_a_piece_that_says_it_is_longer_than_allowed_is_refused_before_it_arrives() -> None:
    with pytest.raises(TooLong, match=golden(1)):
        list(Pieces(10).feed(pack_piece(b"V", bytes(11))[:9]))
