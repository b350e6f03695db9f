"""Pickles of strangers: plain data is read, anything else is refused before it does anything."""

from __future__ import annotations

import os
import pickle
import pickletools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.features.dumps.dump import NotPlain, read_plain
from tests.features.dumps.made import dump, entry
from tests.golden import golden

pytestmark = pytest.mark.unit

PLAIN: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(0, 99), inner),
)


@given(PLAIN, st.sampled_from([2, 3, 4, 5]))
def test_plain_data_is_read_as_python_reads_it(data: Any, protocol: int) -> None:
    assert read_plain(pickle.dumps(data, protocol)) == data


class Evil:
    def __init__(self, *deed: Any) -> None:
        self.deed = deed

    def __reduce__(self) -> Any:
        return self.deed[0], self.deed[1:]


@pytest.mark.parametrize("protocol", range(6))
def test_no_pickle_runs_anything(protocol: int, tmp_path: Any) -> None:
    target = tmp_path / "made"
    for deed in ((os.mkdir, str(target)), (exec, f"import os; os.mkdir({str(target)!r})"), (open, str(target), "w")):
        data = {"version": "2.10", "pg_config": {}, "entries": [Evil(*deed)]}
        with pytest.raises(NotPlain, match=golden(1)):
            read_plain(pickle.dumps(data, protocol))
    assert not target.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'id'\ntR.",
        b"(S'id'\nios\nsystem\n.",
        b"\x80\x02(cos\nsystem\nX\x02\x00\x00\x00ido.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02Pname\n.",
        b"\x80\x02}(K\x01K\x02ub.",
        pickle.dumps({1, 2}),
        pickle.dumps(b"bytes"),
        pickle.dumps({(1, 2): 3}),
        b"\x80\x02r\xff\xff\xff\xff.",
        b"\x80\x02]r\xff\xff\xff\xffj\xff\xff\xff\x7f.",
        b"\x80\x02X\xff\xff\xff\xffabc.",
        b"\x80\x05\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
        b"\x80\x02" + b"(" * 1000 + b".",
        b"\x80\x02K\x01K\x02a.",
        b"\x80\x02}K\x01s.",
        b"\x80\x02u.",
        b"\x80\x02",
        b"",
        b".",
        b"GIF89a",
        b"\x1f\x8b\x08",
    ],
)
def test_what_is_no_plain_data_or_damaged_is_refused_in_a_clause(data: bytes) -> None:
    with pytest.raises(NotPlain) as raised:
        read_plain(data)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(("has ", "needs ", golden(1)))


def test_what_is_nested_without_end_is_read_and_forgotten_without_harm() -> None:
    deep = read_plain(b"\x80\x02" + b"]" * 60_000 + b"a" * 59_999 + b".")
    assert deep[0][0]
    tuples = read_plain(b"\x80\x02)" + b"\x85" * 60_000 + b".")
    assert tuples[0][0]
    with pytest.raises(NotPlain):
        read_plain(b"\x80\x02})" + b"\x85" * 60_000 + b"K\x01s.")


def test_a_dump_that_is_cut_or_changed_anywhere_is_read_or_refused() -> None:
    whole = pickle.dumps(dump([entry(number) for number in range(3)]), protocol=2)
    assert {op.code for op, _, _ in pickletools.genops(whole)} <= set("\x80}q(X]KJU\x8a\x88\x89tueshM.NaG\x85\x86\x87")
    chance = random.Random(7)
    for place in range(0, len(whole), 7):
        changed = bytearray(whole)
        changed[place] = chance.randrange(256)
        for data in (whole[:place], bytes(changed)):
            try:
                read_plain(data)
            except NotPlain:
                continue
