"""What a cluster of pods consists of: a ConfigMap that owns all else, a service, a pod for each node. Pure."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from lab.engine import boot
from lab.engine import ownership as label
from lab.engine.docker.image import DEFAULT_IMAGE
from lab.engine.protocol import Request
from lab.errors import ClusterUnfit, UsageError
from lab.features.kubernetes.command import Target
from lab.plan.cluster import Shape
from lab.spec.kinds import parse_duration
from lab.words import join_words

OPTIONS = {
    "context": "a context of kubectl",
    "namespace": "a namespace",
    "template": "a YAML file that is merged into each pod",
    "queue": "a local queue of Kueue",
    "registry": "where the default image is, such as registry.example.org/team",
    "shared": "a claim of a volume that all machines can write",
    "time": "how long the pods may live, such as 8h",
    "wait": "how long to wait for machines, such as 30m",
}
"""What `--allocation` can set."""
VARIABLES = "LAB_KUBERNETES_"
ENGINE = "kubernetes"
TIME, WAIT = "24h", "10m"
ROOT = "/var/lab"
SHARED = "/shared"
CONTAINER = "node"
_UNPRIVILEGED = 20000
"""The user of a strict pod."""
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETPCAP", "SETUID")
"""Needed to give workers users of their own; Kubernetes' level `baseline` allows them."""
_LIVE = """: node of the lab
trap '{leave} exit 0' TERM
sleep 900 & wait $!
[ -e {root}/first ] || exit 1
while :; do sleep 86400 & wait $!; done
"""
"""The first process of a pod: it ends if no agent starts in 15 minutes."""
START = Path(__file__).with_name("start.sh").read_text()
_QUEUE = "kueue.x-k8s.io"


def object_name(cluster: str, owner: str) -> str:
    """Return the name of a cluster's objects, which two users of a namespace can have side by side."""
    return f"lab-{cluster}-{owner}"


def target_of(shape: Shape) -> Target:
    """Return where a shape's `--allocation` puts its pods."""
    return Target(read_option(shape, "context"), read_option(shape, "namespace"))


def read_option(shape: Shape, name: str) -> str:
    """Return an option of `--allocation`; its default is in a variable, such as LAB_KUBERNETES_NAMESPACE."""
    return shape.allocation.get(name) or os.environ.get(f"{VARIABLES}{name.upper()}", "")


def seconds_of(shape: Shape, name: str, default: str) -> int:
    """Return the seconds of an option of `--allocation`.

    Raises:
        ClusterUnfit: It is no duration.
    """
    text = read_option(shape, name) or default
    try:
        return max(1, round(parse_duration(text)))
    except UsageError as error:
        raise ClusterUnfit(f"--allocation {name}={text}: {error.message}", "write it as 30m or 8h") from None


def requests_for(cluster: str, shape: Shape, *, person: str, owner: str, run: str | None) -> list[Request]:
    """Return the objects of a cluster, without owner references, which name an object that exists.

    Args:
        cluster: Its name.
        shape: Its shape.
        person: `user@host` of its owner.
        owner: The same and the folder of the owner's clusters, as a short label.
        run: The run that will remove it, if any.

    Raises:
        ClusterUnfit: Pods cannot have this shape.
    """
    _refuse_impossible(shape)
    name = object_name(cluster, owner)
    labels = {label.CLUSTER: cluster, label.OWNER: owner}
    notes = label.cluster_labels(cluster, person, shape.to_json(), run)
    metadata = {"name": name, "labels": labels, "annotations": notes}
    chosen = {"matchLabels": labels}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": True},
        },
    ]
    if shape.strict:
        peers = [{"podSelector": chosen}]
        rules = {"ingress": [{"from": peers}], "egress": [{"to": peers}]}
        objects.append({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata,
            "spec": {"podSelector": chosen, "policyTypes": ["Ingress", "Egress"], **rules},
        })  # fmt: skip
    objects += [_pod(f"node{rank}", name, labels, notes, shape) for rank in range(shape.nodes)]
    return [Request(what=f"{one['kind']} {one['metadata']['name']}", body=one) for one in objects]


def _pod(node: str, name: str, labels: Mapping[str, str], notes: Mapping[str, str], shape: Shape) -> dict[str, Any]:
    """Return the pod of a node, merged with the template and then with what the lab relies on."""
    plain = {
        "metadata": {"annotations": dict(notes)},
        "spec": {
            "terminationGracePeriodSeconds": 5,
            "activeDeadlineSeconds": seconds_of(shape, "time", TIME),
            "affinity": _affinity(labels, shape),
            "containers": [_container(name, shape)],
            "volumes": _volumes(shape),
        },
    }
    security = _strict_security() if shape.strict else _usual_security()
    leave = f"rm -rf {SHARED}/* {SHARED}/.[!.]*;" if node == "node0" and read_option(shape, "shared") else ""
    command = ["sh", "-c", _LIVE.format(leave=leave, root=ROOT)]
    firm = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{name}-{node}", "labels": {**labels, label.NODE: node}},
        "spec": {
            "hostname": node,
            "subdomain": name,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": security[0],
            "containers": [{"name": CONTAINER, "command": command, "securityContext": security[1]}],
        },
    }
    template = read_option(shape, "template")

    def refuse(path: str) -> None:
        why = f"the template {template} cannot set {path}: the lab relies on its own value"
        raise ClusterUnfit(why, "leave it out")

    asked = merge_parts(_read_template(template), firm, refuse)
    pod: dict[str, Any] = reduce(merge_parts, (plain, _queue(name, shape), asked))
    return pod


def _container(name: str, shape: Shape) -> dict[str, Any]:
    claim = read_option(shape, "shared")
    limits = {"cpu": f"{shape.cpus:g}" if shape.cpus else "", "memory": str(shape.memory_bytes or "")}
    limits["nvidia.com/gpu"] = str(shape.gpus or "")
    limits = {name: amount for name, amount in limits.items() if amount}
    paths = {"shared": SHARED, "shm": "/dev/shm"}
    if shape.strict:
        paths |= {"lab": ROOT, "site": boot.IMPORT_ROOT, "tmp": "/tmp", "var-tmp": "/var/tmp"}
    env = {**({"HOME": "/tmp"} if shape.strict else {}), **shape.env}
    return {
        "name": CONTAINER,
        "image": image_of(shape),
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "resources": {"limits": limits, "requests": dict(limits)},
        "volumeMounts": [
            {"name": volume, "mountPath": path, **({"subPath": name} if volume == "shared" and claim else {})}
            for volume, path in paths.items()
        ],
    }


def image_of(shape: Shape) -> str:
    """Return the image of the nodes."""
    registry = read_option(shape, "registry").rstrip("/")
    return shape.image or (f"{registry}/{DEFAULT_IMAGE}" if registry else DEFAULT_IMAGE)


def _volumes(shape: Shape) -> list[dict[str, Any]]:
    claim = read_option(shape, "shared")
    limit = {"sizeLimit": str(shape.disk_bytes)} if shape.disk_bytes else {}
    volumes: list[dict[str, Any]] = [
        {"name": "shared", **({"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": limit})},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    folders = ("lab", "site", "tmp", "var-tmp") if shape.strict else ()
    return [*volumes, *({"name": name, "emptyDir": dict(limit)} for name in folders)]


def _affinity(labels: Mapping[str, str], shape: Shape) -> dict[str, Any]:
    """Spread nodes over machines if possible; use only the named hosts."""
    name = "kubernetes.io/hostname"
    term = {"topologyKey": name, "labelSelector": {"matchLabels": dict(labels)}}
    spread = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    if not shape.hosts:
        return {"podAntiAffinity": spread}
    terms = [{"matchExpressions": [{"key": name, "operator": "In", "values": list(shape.hosts)}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"podAntiAffinity": spread, "nodeAffinity": required}


def _queue(name: str, shape: Shape) -> dict[str, Any]:
    """Return what has Kueue start all pods together or none."""
    queue = read_option(shape, "queue")
    if not queue:
        return {}
    labels = {f"{_QUEUE}/queue-name": queue, f"{_QUEUE}/pod-group-name": name}
    return {"metadata": {"labels": labels, "annotations": {f"{_QUEUE}/pod-group-total-count": str(shape.nodes)}}}


def _usual_security() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the security of a pod and of its container: the agent is root and gives each worker another user."""
    capabilities = {"drop": ["ALL"], "add": list(_CAPABILITIES)}
    pod = {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}}
    return pod, {"allowPrivilegeEscalation": False, "capabilities": capabilities}


def _strict_security() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what Kubernetes' level `restricted` requires, and a read-only root."""
    ids = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), _UNPRIVILEGED)
    pod = {"runAsNonRoot": True, **ids, "seccompProfile": {"type": "RuntimeDefault"}}
    return pod, {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def agent_config(pod: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """Return the configuration of an agent: in a strict pod it is no root, and so shares its user with the workers."""
    (container,) = (one for one in pod["spec"]["containers"] if one["name"] == CONTAINER)
    ours = {"/dev/shm", "/tmp", "/var/tmp", ROOT, boot.IMPORT_ROOT}
    return {
        "node": pod["spec"]["hostname"],
        "root": ROOT,
        "container": not shape.strict,
        "import_root": boot.IMPORT_ROOT,
        "kept": [mount["mountPath"] for mount in container["volumeMounts"] if mount["mountPath"] not in ours],
        "disk_bytes": shape.disk_bytes,
        "strict": shape.strict,
        "foreign": shape.image is not None,
        "shared": SHARED,
    }


def agent_argv(target: Target, pod: Mapping[str, Any], shape: Shape, hosts: str) -> list[str]:
    """Return the command that starts an agent in a pod; `hosts` are lines for its `/etc/hosts`."""
    words = ["sh", "-c", START, ROOT, boot.BECOME, json.dumps(agent_config(pod, shape)), hosts, "python3", "python"]
    return target.argv("exec", "-i", pod["metadata"]["name"], f"--container={CONTAINER}", "--", *words)


def merge_parts(base: Any, change: Any, replaced: Callable[[str], object] = lambda _: None, path: str = "") -> Any:
    """Merge two parts of an object: mappings by key, lists of named entries by name; else the second one wins.

    Args:
        base: The first one.
        change: The second one.
        replaced: Called with the path of each value of the first one that the second one replaces.
        path: Of both parts.
    """
    if isinstance(base, Mapping) and isinstance(change, Mapping):
        merged = dict(base)
        for key, value in change.items():
            inner = f"{path}.{key}".lstrip(".")
            merged[key] = merge_parts(base[key], value, replaced, inner) if key in base else value
        return merged
    if not _are_named(base) or not _are_named(change):
        if base != change:
            replaced(path)
        return change
    entries = {_identify(entry): entry for entry in base}
    for entry in change:
        inner = f"{path}.{entry['name']}"
        entries[_identify(entry)] = merge_parts(entries.get(_identify(entry), {}), entry, replaced, inner)
    return list(entries.values())


def _are_named(value: Any) -> bool:
    return isinstance(value, Sequence) and all(isinstance(one, Mapping) and "name" in one for one in value)


def _identify(entry: Mapping[str, Any]) -> tuple[Any, Any]:
    return entry["name"], entry.get("mountPath")


def _read_template(path: str) -> dict[str, Any]:
    """Read the template of a pod.

    Raises:
        ClusterUnfit: It is not there, or no part of a pod.
    """
    if not path:
        return {}
    import yaml

    from lab.spec.document import read_document
    from lab.spec.reading import InvalidError, Position

    try:
        content: Any = yaml.SafeLoader("").construct_document(read_document(Path(path)))
        content = json.loads(json.dumps(content, default=str))  # a date is text for Kubernetes
    except (InvalidError, yaml.YAMLError, TypeError, ValueError, OverflowError) as error:
        where, why = error.args if isinstance(error, InvalidError) else (Position(), error)
        line = f":{where.line}" if where != Position() else ""
        raise ClusterUnfit(f"cannot read the template {path}{line}: {' '.join(str(why).split())}") from None
    spec = content.get("spec", {}) if isinstance(content, dict) else None
    if not isinstance(spec, dict) or not {*content} <= {"apiVersion", "kind", "metadata", "spec"}:
        hint = "write it as in `spec: {nodeSelector: {disk: ssd}}`"
        raise ClusterUnfit(f"the template {path} is no part of a pod; allowed: metadata and spec", hint)
    return {**content}


def _refuse_impossible(shape: Shape) -> None:
    """Refuse a shape that pods cannot have.

    Raises:
        ClusterUnfit: They cannot.
    """
    unknown = [name for name in shape.allocation if name not in OPTIONS]
    if unknown:
        raise ClusterUnfit(f"--allocation cannot set {unknown[0]} of pods", f"allowed: {join_words(OPTIONS)}")
    if shape.volumes or shape.data:
        folder = shape.volumes[0].source if shape.volumes else next(iter(shape.data.values()))
        why = f"the kubernetes engine cannot mount {folder}: pods do not see the folders of this machine"
        raise ClusterUnfit(why, "copy it with `lab cp`, or mount a volume with --allocation template=FILE")
    if shape.requirements:
        why = "the kubernetes engine cannot add packages to an image"
        raise ClusterUnfit(why, "use an image that has the packages")
    seconds_of(shape, "wait", WAIT)
