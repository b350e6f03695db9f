"""What the API server is asked for, from shape and names alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.engine import ownership as label
from lab.errors import ClusterUnfit
from lab.features.kubernetes.command import Target
from lab.features.kubernetes.pods import agent_argv, image_of, merge_parts, requests_for, seconds_of
from lab.plan.cluster import Shape


@pytest.fixture(autouse=True)
def no_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the shape says what is asked for."""
    for name in ("SHARED", "NAMESPACE", "REGISTRY", "TEMPLATE"):
        monkeypatch.delenv(f"LAB_KUBERNETES_{name}", raising=False)


def objects(kind: str, **shape: Any) -> list[dict[str, Any]]:
    requests = requests_for("c", Shape(**{"nodes": 2, **shape}), person="me@here", owner="abc123", run="r")
    return [dict(request.body) for request in requests if request.body["kind"] == kind]


def pod(**shape: Any) -> Any:
    return objects("Pod", **shape)[0]


def container(**shape: Any) -> Any:
    return pod(**shape)["spec"]["containers"][0]


def write_template(folder: Path, content: object) -> dict[str, str]:
    (folder / "pod.yaml").write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return {"template": str(folder / "pod.yaml")}


def test_every_object_has_the_labels_by_which_it_is_found_and_the_notes_from_which_its_cluster_is_read():
    requests = requests_for("c", Shape(nodes=2), person="me@here", owner="abc123", run="r")
    assert [request.body["kind"] for request in requests] == ["ConfigMap", "Service", "Pod", "Pod"]
    for metadata in (request.body["metadata"] for request in requests):
        assert metadata["labels"].items() >= {label.CLUSTER: "c", label.OWNER: "abc123"}.items()
        assert metadata["annotations"].items() >= {label.OWNER: "me@here", label.RUN: "r"}.items()
        assert Shape.from_json(metadata["annotations"][label.SHAPE]) == Shape(nodes=2)
        assert metadata["name"].startswith("lab-c-abc123")


def test_pods_are_spread_end_by_themselves_and_get_no_token():
    spec = pod()["spec"]
    assert (spec["restartPolicy"], spec["activeDeadlineSeconds"]) == ("Never", 24 * 3600)
    assert spec["automountServiceAccountToken"] is False
    assert "podAntiAffinity" in spec["affinity"]
    assert "nodeAffinity" not in spec["affinity"]
    wanted = pod(hosts=("a", "b"))["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert wanted["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["a", "b"]


def test_resources_are_requested_and_limited():
    assert container()["resources"] == {"limits": {}, "requests": {}}
    resources = container(cpus=1.5, memory_bytes=1 << 30, gpus=2)["resources"]
    assert resources["limits"] == {"cpu": "1.5", "memory": str(1 << 30), "nvidia.com/gpu": "2"}
    assert resources["requests"] == resources["limits"]


def test_the_image_is_the_one_asked_for_or_the_labs_own_of_a_registry():
    assert image_of(Shape(nodes=1, image="a/b:1")) == "a/b:1"
    own = image_of(Shape(nodes=1))
    assert image_of(Shape(nodes=1, allocation={"registry": "here/team/"})) == f"here/team/{own}"
    assert container()["imagePullPolicy"] == "IfNotPresent"


def test_the_shared_folder_is_a_part_of_a_claim_that_node0_empties_at_the_end():
    (mount,) = (one for one in container(allocation={"shared": "all"})["volumeMounts"] if one["name"] == "shared")
    assert mount == {"name": "shared", "mountPath": "/shared", "subPath": "lab-c-abc123"}
    pods = objects("Pod", allocation={"shared": "all"})
    assert {"name": "shared", "persistentVolumeClaim": {"claimName": "all"}} in pods[0]["spec"]["volumes"]
    assert ["rm -rf /shared" in one["spec"]["containers"][0]["command"][-1] for one in pods] == [True, False]
    assert {"name": "shared", "emptyDir": {}} in pod()["spec"]["volumes"]


def test_a_queue_gets_all_pods_or_none():
    metadata = pod(allocation={"queue": "q"}, nodes=3)["metadata"]
    assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert metadata["annotations"]["kueue.x-k8s.io/pod-group-total-count"] == "3"


def test_workers_get_users_of_their_own_or_in_a_strict_pod_nobody_is_root():
    usual, strict = pod(), pod(strict=True)
    assert usual["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False
    assert "NET_ADMIN" not in usual["spec"]["containers"][0]["securityContext"]["capabilities"]["add"]
    assert strict["spec"]["securityContext"]["runAsNonRoot"] is True
    assert strict["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    own = strict["spec"]["containers"][0]["securityContext"]
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert own["readOnlyRootFilesystem"] is True
    (policy,) = objects("NetworkPolicy", strict=True)
    peers = [{"podSelector": policy["spec"]["podSelector"]}]
    assert (policy["spec"]["ingress"], policy["spec"]["egress"]) == ([{"from": peers}], [{"to": peers}])
    assert not objects("NetworkPolicy")


def test_an_agent_is_told_what_stays_after_a_run_and_whether_it_is_root(tmp_path: Path):
    mounts = [{"name": "sets", "mountPath": "/mnt/sets"}]
    volumes = [{"name": "sets", "emptyDir": {}}]
    content = {"spec": {"volumes": volumes, "containers": [{"name": "node", "volumeMounts": mounts}]}}
    shape = Shape(nodes=2, allocation=write_template(tmp_path, content))
    for strict in (False, True):
        made = pod(allocation=shape.allocation, strict=strict)
        argv = agent_argv(Target("c", "n"), made, Shape(nodes=2, strict=strict), "10.0.0.1 node0")
        assert argv[:4] == ["kubectl", "--context=c", "--namespace=n", "exec"]
        config = json.loads(argv[-4])
        assert (config["node"], config["container"]) == ("node0", not strict)
        assert config["kept"] == ["/shared", "/mnt/sets"]


def test_a_template_is_merged_into_each_pod(tmp_path: Path):
    content = {
        "metadata": {"labels": {"team": "a"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "node", "env": [{"name": "A", "value": "2"}]}, {"name": "other", "image": "x"}],
        },
    }
    made = pod(allocation=write_template(tmp_path, content), env={"A": "1", "B": "1"})
    assert made["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert made["metadata"]["labels"].items() >= {"team": "a", label.CLUSTER: "c"}.items()
    assert [one["name"] for one in made["spec"]["containers"]] == ["node", "other"]
    assert made["spec"]["containers"][0]["env"] == [{"name": "A", "value": "2"}, {"name": "B", "value": "1"}]
    assert made["spec"]["containers"][0]["command"][0] == "sh"


def test_parts_are_merged_by_key_and_by_name_and_else_the_second_one_wins():
    base = {"a": {"b": 1}, "list": [{"name": "x", "v": 1}, {"name": "y"}], "words": [1]}
    change = {"a": {"c": 2}, "list": [{"name": "x", "v": 2}], "words": [2]}
    assert merge_parts(base, change) == {
        "a": {"b": 1, "c": 2},
        "list": [{"name": "x", "v": 2}, {"name": "y"}],
        "words": [2],
    }


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            {"spec": {"restartPolicy": "Always"}},
            "the template {0}/pod.yaml cannot set spec.restartPolicy: the lab relies on its own value",
        ),
        (
            {"spec": {"containers": [{"name": "node", "command": ["x"]}]}},
            "the template {0}/pod.yaml cannot set spec.containers.node.command: the lab relies on its own value",
        ),
        (
            {"metadata": {"labels": {label.CLUSTER: "x"}}},
            "the template {0}/pod.yaml cannot set metadata.labels.lab.cluster.name: the lab relies on its own value",
        ),
        ("[1]", "the template {0}/pod.yaml is no part of a pod; allowed: metadata and spec"),
        ("a: [", "cannot read the template {0}/pod.yaml:1: not valid YAML: while parsing"),
        (
            "&a\nspec: {x: *a}",
            "cannot read the template {0}/pod.yaml:2: alias *a refers to a value that contains it",
        ),
        ("a: 2020-02-30", "cannot read the template {0}/pod.yaml: day is out of range for month"),
    ],
)
def test_a_template_that_the_lab_cannot_use_is_refused_with_what_is_wrong(tmp_path: Path, content: object, why: str):
    with pytest.raises(ClusterUnfit) as refused:
        pod(allocation=write_template(tmp_path, content))
    assert why.format(tmp_path) in refused.value.message


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ({"allocation": {"partition": "x"}}, "--allocation cannot set partition of pods"),
        ({"allocation": {"time": "soon"}}, "--allocation time=soon: "),
        ({"allocation": {"wait": "x"}}, "--allocation wait=x: "),
        ({"allocation": {"template": "/none"}}, "cannot read the template /none: no such file"),
        (
            {"data": {"a": Path("/tmp")}},
            "the kubernetes engine cannot mount /tmp: pods do not see the folders of this machine",
        ),
        ({"requirements": ("x",)}, "the kubernetes engine cannot add packages to an image"),
    ],
)
def test_what_pods_cannot_be_is_refused(shape: dict[str, Any], why: str):
    with pytest.raises(ClusterUnfit) as refused:
        pod(**shape)
    assert why in refused.value.message


def test_an_option_has_its_default_in_a_variable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LAB_KUBERNETES_TIME", "90m")
    assert seconds_of(Shape(nodes=1), "time", "24h") == 5400
    assert seconds_of(Shape(nodes=1, allocation={"time": "1h"}), "time", "24h") == 3600
