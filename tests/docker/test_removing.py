"""Removing a cluster whose network somebody else is on."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress

import docker
import pytest
from docker.models.containers import Container

from lab import Cluster
from lab.engine.docker import state as remove
from lab.errors import ClusterError
from tests.golden import golden

pytestmark = pytest.mark.docker


@pytest.fixture
def cluster(person: None) -> Iterator[Cluster]:
    made = Cluster(name=f"t-{uuid.uuid4().hex[:12]}", engine="docker", nodes=1)
    made.up()
    yield made
    made.down()


@pytest.fixture
def stranger(cluster: Cluster) -> Iterator[Container]:
    """A container that is none of the lab's, on the network of the cluster."""
    client, info = docker.from_env(), cluster.info()
    assert info is not None
    node = client.containers.get(info.nodes[0].handle)
    (network,) = node.attrs["NetworkSettings"]["Networks"]
    made = client.containers.run(
        node.image.id, entrypoint=["sleep", "600"], name=f"lab-test-{cluster.name}", network=network, detach=True
    )
    yield made
    with suppress(docker.errors.NotFound):  # a test removed it
        made.remove(force=True)


def test_a_network_that_stays_in_use_is_said_to_be_left_and_goes_once_it_is_free(
    cluster: Cluster, stranger: Container, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(remove, "_DEADLINE_S", 0.5)
    with pytest.raises(ClusterError, match=golden(1)) as told:
        cluster.down()
    assert told.value.hint.startswith(golden(2))
    assert f" {stranger.name}`" in told.value.hint
    stranger.remove(force=True)
    assert cluster.down().networks == 1
    assert not cluster.down()
