"""Checks of `lab doctor` for Kubernetes: versions, rights, machines, the image on them, network policies, storage."""

from __future__ import annotations

import json

from lab.engine.doctor import Check, Wanted
from lab.errors import LabError
from lab.features.kubernetes import pods
from lab.features.kubernetes.command import Target, reading_answer, why_not_ready
from lab.plan.cluster import Shape
from lab.words import format_count, join_words

RIGHTS = (
    *(f"{verb} {kind}" for kind in ("pods", "services", "configmaps") for verb in ("create", "list", "delete")),
    "create pods/exec",
)
"""What the engine needs in its namespace."""
_HELPFUL = {"list events": "why a pod waits or ended", "create networkpolicies.networking.k8s.io": "--strict"}
_ENFORCERS = ("calico", "cilium", "antrea", "weave", "kube-router", "canal", "ovn", "netpol", "aws-node")
"""Parts of names of network plugins that enforce policies."""


def examine_kubernetes(wanted: Wanted) -> list[Check]:
    """Check whether Kubernetes answers, what this user may do there, and whether its machines can be nodes."""
    try:
        target = pods.target_of(Shape(nodes=1)).resolved()
        with reading_answer():
            return [_versions(target), *_rights(target), *_machines(target, wanted), _policies(target), _storage()]
    except LabError as error:
        return [Check("failed", "engine", error.message, error.hint or "see `kubectl cluster-info`")]


def _versions(target: Target) -> Check:
    known = json.loads(target.ask("version", "--output=json"))
    server, client = (known[one]["gitVersion"] for one in ("serverVersion", "clientVersion"))
    where = f" in {target.namespace} of {target.context}" if target.context else ""
    return Check("ok", "engine", f"Kubernetes {server}{where}, kubectl {client}")


def _rights(target: Target) -> list[Check]:
    def may(right: str) -> bool:
        return target.run("auth", "can-i", *right.split()).stdout.strip() == "yes"

    missing = [right for right in RIGHTS if not may(right)]
    result = f"you may not {join_words(missing)}" if missing else f"you may {join_words(RIGHTS)}"
    checks = [Check.judge("rights", result, missing, "ask for the role in docs/kubernetes-role.yaml", "failed")]
    for right, use in _HELPFUL.items():
        if not may(right):
            checks.append(Check("warning", "rights", f"you may not {right}: needed for {use}", "ask for that right"))
    return checks


def _machines(target: Target, wanted: Wanted) -> list[Check]:
    try:
        hosts = target.list("nodes")
    except LabError:
        return [Check("warning", "machines", "you may not list machines", "ask the cluster's administrator for them")]
    bad = {host["metadata"]["name"]: why for host in hosts if (why := why_not_ready(host))}
    result = f"{len(hosts) - len(bad)} of {format_count(len(hosts), 'machine')} ready"
    result += "".join(f"; {name}: {why}" for name, why in bad.items())
    image = pods.image_of(Shape(nodes=1, image=wanted.image))
    names = [[name for one in host["status"].get("images") or () for name in one.get("names") or ()] for host in hosts]
    there = sum(any(_are_same(image, name) for name in some) for some in names)
    fix = "load it on the machines, or push it to a registry: --allocation registry=HOST, or --image"
    known = f"{image} is on {there} of {format_count(len(hosts), 'machine')}"
    return [
        Check.judge("machines", result, len(hosts) - len(bad) < wanted.nodes, "nodes will share machines"),
        Check.judge("image", known, there < len(hosts), fix),
    ]


def _are_same(image: str, name: str) -> bool:
    return name.removeprefix("docker.io/").removeprefix("library/") in (image, f"{image}:latest")


def _policies(target: Target) -> Check:
    """Look for a plugin that enforces policies; only its pods show that there is one."""
    try:
        names = [pod["metadata"]["name"] for pod in target.list("pods", "--all-namespaces")]
    except LabError:
        names = []
    plugin = next((name for name in names if any(one in name for one in _ENFORCERS)), "")
    result = f"{plugin} enforces network policies" if plugin else "no plugin that enforces network policies is known"
    return Check.judge("network", result, not plugin, "without one, --strict does not close the network of nodes")


def _storage() -> Check:
    claim = pods.read_option(Shape(nodes=1), "shared")
    fix = "each node has its own /shared: name a claim with --allocation shared=CLAIM"
    result = f"/shared is the claim {claim}" if claim else "/shared is no common folder without a claim"
    return Check.judge("shared folder", result, not claim, fix)
