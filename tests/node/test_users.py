"""Who the processes of a run are."""

from __future__ import annotations

import os

import pytest

from lab.node.messages.agent import FIRST_UID, STARTER, Claim
from lab.node.users import GROUP, MADE_UP, Users, first_uid_of

CLAIM = Claim("r", "me", 60.0)


def test_on_this_machine_everybody_is_who_called():
    users = Users(CLAIM._replace(uid=5, gid=5), container=False)
    assert users.worker(0) == users.worker(3) == users.store == (os.geteuid(), os.getegid())
    assert users.variables(0) == {}


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent of a container."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.usefixtures("root")
def test_in_a_container_each_rank_the_store_and_the_check_are_different_users():
    users = Users(CLAIM, container=True)
    assert [users.worker(0), users.worker(2)] == [(FIRST_UID, GROUP), (FIRST_UID + 2, GROUP)]
    everybody = [users.worker(0), users.worker(1), users.worker(-1), users.store]
    assert len({user.uid for user in everybody}) == 4
    assert 0 not in {number for user in everybody for number in user}
    assert users.variables(1) == {"USER": "worker1", "LOGNAME": "worker1"}


@pytest.mark.usefixtures("root")
def test_all_ranks_are_whoever_is_asked_for_but_never_root():
    users = Users(CLAIM._replace(uid=1000, gid=0), container=True)
    assert users.worker(0) == users.worker(1) == users.worker(-1) == (1000, GROUP)
    assert users.store.uid not in (0, 1000)
    assert Users(CLAIM._replace(uid=0, gid=0), container=True).worker(0) == (FIRST_UID, GROUP)


@pytest.mark.usefixtures("root")
def test_a_cluster_that_is_kept_from_others_has_users_of_its_own():
    first = first_uid_of("grade-1-0")
    users, others = (Users(CLAIM._replace(first_uid=uid), container=True) for uid in (first, FIRST_UID))
    mine, theirs = ({of.worker(n).uid for n in (0, 60, -1, STARTER)} | {of.store.uid} for of in (users, others))
    assert mine.isdisjoint(theirs)
    assert mine | theirs <= set(MADE_UP)
    assert users.worker(1) == (first + 1, GROUP)
    assert len({first_uid_of(f"grade-1-{number}") for number in range(8)}) > 6
    assert max(MADE_UP) < 1 << 16  # the last one in many a container
