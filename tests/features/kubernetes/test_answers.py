"""Answers of an API server and of kubectl, as version 1.20 and 1.32 gave them, are read as data."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.errors import ClusterUnfit, EngineAbsent, EngineUnavailable, LabError
from lab.features.kubernetes.command import (
    STREAM_ENDED,
    Pod,
    explain_end,
    explain_error,
    read_events,
    read_pod,
    refuse_absence,
    why_not_ready,
)
from lab.features.kubernetes.engine import KubernetesEngine, copy_errors
from tests.golden import golden

ANSWERS: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name("answers.json").read_text())


def recorded(name: str) -> Pod:
    return read_pod(ANSWERS[name][0])


def changed(name: str, **status: Any) -> Pod:
    item = ANSWERS[name][0]
    return read_pod({**item, "status": {**item["status"], **status}})


def test_a_pod_that_runs_is_ready_and_has_an_address_and_a_machine():
    pod = recorded("running")
    assert (pod.node, pod.is_ready, pod.problem, explain_end(pod)) == ("node0", True, ("", ""), "")
    assert pod.address
    assert pod.host in ("n0", "n1", "n2")


def test_a_pod_without_a_machine_only_waits():
    pod = recorded("unschedulable")
    assert (pod.is_ready, pod.problem, pod.unscheduled) == (False, ("", ""), golden(1))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (
            "never",
            'cannot start: ErrImageNeverPull (Container image "nosuch:1" is not present with pull policy of Never)',
        ),
        ("pull", 'cannot start: ImagePullBackOff (Back-off pulling image "nosuch:1")'),
        ("secret", 'cannot start: CreateContainerConfigError (secret "none" not found)'),
    ],
)
def test_a_pod_that_can_never_start_is_a_problem_with_what_to_do(name: str, why: str):
    problem, hint = recorded(name).problem
    assert why in problem
    assert hint


def test_events_are_read_by_their_reason_with_the_latest_one_last():
    events = read_events(ANSWERS["preempted-events"], "u")
    assert [*events][-2:] == ["Preempted", "Killing"]
    assert explain_end(None, events) == golden(1)
    assert "BackOff" in read_events(ANSWERS["pull-events"], "u")


def test_events_without_an_identity_belong_to_the_pod_that_had_the_name_then():
    tainted = ANSWERS["tainted-events"]
    assert explain_end(None, read_events(tainted, "u")) == golden(1)
    later = [{**one, "lastTimestamp": "2026-11-28T20:00:00Z", "involvedObject": {"uid": "v"}} for one in tainted[:1]]
    assert read_events([*tainted, *later], "v") == {"Scheduled": tainted[0]["message"]}


def test_what_ended_a_pod_is_said_in_kubernetes_words():
    evicted = changed("running", phase="Failed", reason="Evicted", message="The node was low\non resource: memory.")
    assert explain_end(evicted) == golden(1)
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "evicting"}
    assert explain_end(changed("running", conditions=[condition])) == golden(5)
    killed = {"name": "node", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    assert explain_end(changed("running", phase="Failed", containerStatuses=[killed])) == golden(2)
    assert explain_end(None) == golden(3)
    assert explain_end(None, {"Preempted": "Preempted by default/x on node n1"}) == golden(4)
    assert explain_end(changed("running", phase="Succeeded")) == STREAM_ENDED
    item = ANSWERS["running"][0]
    leaving = read_pod({**item, "metadata": {**item["metadata"], "deletionTimestamp": "2026-11-28T00:00:00Z"}})
    assert (leaving.is_ready, explain_end(leaving)) == (False, golden(3))


def test_a_machine_is_ready_or_says_why_not():
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    assert why_not_ready({"status": {"conditions": [ready]}}) == ""
    lost = {**ready, "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting"}
    assert why_not_ready({"status": {"conditions": [lost]}}) == "NodeStatusUnknown (Kubelet stopped posting)"


FORBIDDEN = (
    'Error from server (Forbidden): pods is forbidden: User "student" cannot list resource "pods" in API group "" '
    'in the namespace "default"'
)
QUOTA = (
    'Error from server (Forbidden): error when creating "STDIN": pods "lab-c-node1" is forbidden: exceeded quota: q, '
    "requested: pods=1, used: pods=1, limited: pods=1"
)


@pytest.mark.parametrize(
    ("stderr", "kind", "hint"),
    [
        (FORBIDDEN, ClusterUnfit, "kubernetes-role.yaml"),
        (QUOTA, ClusterUnfit, "use fewer nodes"),
        ('Error from server (NotFound): namespaces "none" not found', ClusterUnfit, "get namespaces"),
        ('error: context "none" does not exist', ClusterUnfit, "get-contexts"),
        ("error: You must be logged in to the server (Unauthorized)", EngineUnavailable, "wrong or expired"),
        ("The connection to the server 10.0.0.1:6443 was refused", EngineUnavailable, "context=NAME"),
        ("The connection to the server localhost:8080 was refused", EngineUnavailable, "set KUBECONFIG"),
        (
            "E1128 00:00:00.1 memcache.go:265] no\nUnable to connect to the server: EOF",
            EngineUnavailable,
            "cluster-info",
        ),
    ],
)
def test_an_error_of_kubectl_is_a_sentence_with_what_to_do(stderr: str, kind: type[LabError], hint: str):
    error = explain_error(f"\n{stderr}\n")
    assert type(error) is kind
    assert hint in error.hint
    last = stderr.splitlines()[-1].partition("): ")[2] or stderr.splitlines()[-1].removeprefix("error: ")
    assert error.message.endswith(last.removeprefix('error when creating "STDIN": '))


def test_without_kubectl_the_engine_is_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineAbsent, match="kubectl"):
        refuse_absence()


@pytest.mark.parametrize(
    ("pieces", "copied"),
    [
        ([b"err\n", b"command terminated with exit code 7\n"], b"err\n"),
        ([b"err\ncommand termi", b"nated with exit code 7\n"], b"err\n"),
        ([b"> "], b"> "),
        ([b"command line\n", b"x"], b"command line\nx"),
        ([b""], b""),
    ],
)
def test_what_kubectl_says_of_an_exit_code_is_left_out(pieces: list[bytes], copied: bytes):
    (source, near), (far, target) = os.pipe(), os.pipe()
    with open(source, "rb", buffering=0) as read:
        copier = threading.Thread(target=copy_errors, args=(read, target))
        copier.start()
        for piece in pieces:
            os.write(near, piece)
        os.close(near)
        copier.join(20)
    os.close(target)
    with open(far, "rb") as result:
        assert result.read() == copied


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[object], KubernetesEngine]:
    """An engine to whose requests an API server gives one answer."""
    (tmp_path / "bin").mkdir()
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.write_text(f'#!/bin/sh\ncase "$*" in *"config view"*) echo {{}} ;; *) cat {tmp_path}/answer ;; esac\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("LAB_KUBERNETES_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def answer(content: object) -> KubernetesEngine:
        (tmp_path / "answer").write_text(content if isinstance(content, str) else json.dumps(content))
        return KubernetesEngine()

    return answer


NOT_PODS: list[object] = [
    *("<html>", "[" * 100_000, "NaN", [], 3, {"items": 3}, {"items": [3]}, {"items": [{}]}),
    {"items": [{"metadata": {"name": []}}]},
    {"items": [{"metadata": {"name": "a", "annotations": [1]}}]},
    {"items": [{"metadata": {"name": "a"}, "status": {"conditions": [3], "containerStatuses": {"a": 1}}}]},
    {"items": [{"metadata": {"name": "a", "labels": {"lab.cluster.node": "node0"}, "annotations": {}}}]},
]


@pytest.mark.parametrize("content", NOT_PODS, ids=range(len(NOT_PODS)))
def test_an_answer_that_is_none_of_kubernetes_is_refused_in_a_sentence(
    answer: Callable[[object], KubernetesEngine], content: object
):
    engine = answer(content)
    assert engine.machine().cores == 1
    for ask in (engine.find, lambda: engine.remove(None)):
        with pytest.raises(EngineUnavailable) as refused:
            ask()
        assert refused.value.message.startswith("cannot read the answer of the API server: ")
        assert len(refused.value.message) < 1000


@pytest.mark.parametrize("name", ["../victim", "..", ".", "", "a/../../victim"])
def test_no_answer_makes_a_removal_leave_the_folder_of_clusters(
    answer: Callable[[object], KubernetesEngine], tmp_path: Path, name: str
):
    for kept in ("victim", "home/mine"):
        (tmp_path / kept).mkdir(parents=True)
        (tmp_path / kept / "file").touch()
    labels = {"lab.cluster.name": name}
    answer({"items": [{"kind": "Pod", "metadata": {"name": "a", "labels": labels}, "status": {"containerStatuses": [
        {"state": {"terminated": {"reason": "Completed"}}}]}}]}).remove(None)  # fmt: skip
    assert (tmp_path / "victim" / "file").exists()
    assert (tmp_path / "home" / "mine" / "file").exists()


def test_output_that_looks_like_the_last_line_of_kubectl_is_passed_on(tmp_path: Path):
    said = b"command terminated with exit code " + b"1" * 1_000_000
    (tmp_path / "said").write_bytes(said)
    with open(tmp_path / "said", "rb") as source, open(tmp_path / "copy", "wb") as copy:
        copy_errors(source, copy.fileno())
    assert (tmp_path / "copy").read_bytes() == said
