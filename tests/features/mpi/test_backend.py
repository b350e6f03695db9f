"""What is said of a script that names another backend than its run has."""

from __future__ import annotations

from lab.features.mpi.backends import find_named_backends
from lab.node.messages.agent import Named
from tests.diagnosis.facts import told_facts
from tests.golden import golden


def test_ranks_that_named_the_same_are_told_together_with_their_line():
    named = [Named(rank, 1.0, named="gloo", backend="mpi", instead=True, at="train.py:7") for rank in (2, 0, 1)]
    (finding,) = find_named_backends(named)
    assert finding.kind == "backend"
    assert told_facts(finding) == {
        "named": "gloo",
        "backend": "mpi",
        "instead": True,
        "at": ["train.py:7", "train.py:7", "train.py:7"],
    }
    assert (finding.others, finding.lines) == ((0, 1, 2), ("train.py:7",))


def test_a_name_that_stays_is_told_with_what_the_scenario_says():
    assert find_named_backends([Named(1, 1.0, named="gloo", backend="mpi", at="a.py:3")])[0].headline == (golden(1))


def test_an_address_that_was_rewritten_is_told_as_an_address():
    used = "tcp://10.0.0.2:29500"
    (finding,) = find_named_backends(
        [Named(1, 1.0, named="tcp://10.0.0.9:8991", backend=used, instead=True, at="a.py:3")]
    )
    assert (finding.kind, finding.headline) == ("address", golden(1))


def test_what_is_too_long_to_be_a_name_is_cut():
    assert len(find_named_backends([Named(0, 1.0, named="x" * 5000, backend="mpi")])[0].headline) < 200


def test_nothing_named_is_nothing_found():
    assert find_named_backends([]) == []
