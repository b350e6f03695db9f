"""Images that cannot be nodes: the reason and the fix in a sentence, and nothing is left."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.crash.conftest import Lab
from tests.golden import golden

if TYPE_CHECKING:
    import docker

pytestmark = pytest.mark.half


@pytest.fixture
def image_with(docker_engine: docker.DockerClient, node_image: str) -> Iterator[Callable[[str], str]]:
    """Makes the node image with one instruction of a Dockerfile changed; it is removed afterwards."""
    made = []

    def make(change: str) -> str:
        container = docker_engine.api.create_container(node_image)["Id"]
        try:
            name = f"lab-test-{uuid.uuid4().hex[:8]}:1"
            docker_engine.api.commit(container, *name.split(":"), changes=[change])
        finally:
            docker_engine.api.remove_container(container, force=True)
        made.append(name)
        return name

    yield make
    for name in made:
        docker_engine.api.remove_image(name, force=True)


@pytest.fixture
def empty_image(docker_engine: docker.DockerClient) -> Iterator[str]:
    """An image that holds nothing, not even a shell."""
    name = f"lab-test-{uuid.uuid4().hex[:8]}"
    docker_engine.api.import_image_from_data(b"\0" * 1024, repository=name, tag="1")
    yield f"{name}:1"
    docker_engine.api.remove_image(f"{name}:1", force=True)


def refused(lab: Lab, image: str, code: int = 2) -> str:
    """What `lab up` says of an image that cannot be used."""
    ended = lab("up", "--nodes", "2", "--image", image)
    assert ended.code == code, ended.said
    assert "Traceback" not in ended.said
    assert "hint:" in ended.err
    assert lab.leftovers() == []
    return ended.err


def test_an_image_that_cannot_be_pulled_is_named(docker_lab: Lab):
    said = refused(docker_lab, "registry.invalid/there/is:none")
    assert "registry.invalid/there/is:none" in said


def test_an_image_name_that_is_no_name_is_refused(docker_lab: Lab):
    assert "Not A Name" in refused(docker_lab, "Not A Name")


def test_an_image_whose_python_has_no_torch_is_refused(docker_lab: Lab, image_with: Callable[[str], str]):
    image = image_with("ENV PATH=/usr/bin:/bin")
    assert golden(1, image) in refused(docker_lab, image)


@pytest.mark.long
def test_an_image_without_python_is_refused(docker_lab: Lab, image_with: Callable[[str], str]):
    image = image_with("ENV PATH=/nonexistent")
    assert golden(1, image) in refused(docker_lab, image)


@pytest.mark.long
def test_an_image_without_a_shell_is_refused(docker_lab: Lab, empty_image: str):
    said = refused(docker_lab, empty_image, code=1)
    assert empty_image in said or "/bin/sh" in said


def test_an_image_with_an_entrypoint_and_a_user_of_its_own_is_a_node_all_the_same(
    docker_lab: Lab, image_with: Callable[[str], str]
):
    image = image_with('ENTRYPOINT ["/bin/false"]')
    assert docker_lab("up", "--nodes", "1", "--image", image).code == 0
    assert docker_lab("run", docker_lab.script("print('ran')")).code == 0


def test_a_run_on_an_image_that_is_missing_says_so(docker_lab: Lab):
    ended = docker_lab("run", docker_lab.script("print(1)"), "--image", "registry.invalid/there/is:none")
    assert ended.code == 2
    assert "registry.invalid/there/is:none" in ended.err
    assert docker_lab("runs", "--json").json() == []
    assert docker_lab.leftovers() == []
