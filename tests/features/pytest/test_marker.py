"""What the marker may say, and what is said of anything else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lab.errors import UsageError
from lab.features.pytest.items import wanted_by


def marked(*args: object, **kwargs: object) -> Any:
    marker = SimpleNamespace(args=args, kwargs=kwargs)
    return SimpleNamespace(get_closest_marker=lambda _: marker)


def test_it_says_what_a_cluster_has():
    mark = marked(nodes=2, nproc_per_node=3, engine="docker", memory="1GiB", image=None)
    assert wanted_by(mark) == {"nodes": 2, "nproc_per_node": 3, "engine": "docker", "memory_bytes": 1 << 30}


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (marked(3), "found 3; allowed: keywords, such as nodes=3"),
        (marked(node=3), "no keyword 'node' (did you mean 'nodes'?); allowed: nodes, "),
        (marked(nodes=0), "found nodes=0; allowed: a whole number, 1 or more"),
        (marked(nodes=True), "found nodes=True"),
        (marked(nodes="3"), "found nodes='3'"),
        (marked(engine="dokcer"), "found engine='dokcer' (did you mean 'docker'?); allowed: auto, docker"),
        (marked(memory="lots"), "memory: found 'lots'; allowed: a size such as"),
        (marked(network="wan"), "network: found 'wan'; allowed: lan-1g, "),
        (marked(network={"delay": "5 mins"}), "network.delay: found '5 mins'; allowed: a duration such as"),
    ],
)
def test_what_it_may_not_say_is_refused_in_a_sentence(marker: Any, message: str):
    with pytest.raises(UsageError) as caught:
        wanted_by(marker)
    assert caught.value.message.startswith("@pytest.mark.lab: ")
    assert message in caught.value.message
