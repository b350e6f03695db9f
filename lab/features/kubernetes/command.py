"""Call kubectl, explain its errors, and read what the API server reports about pods."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from lab.engine import ownership as label
from lab.errors import ClusterUnfit, EngineAbsent, EngineUnavailable, LabError
from lab.features.slurm.command import run_client
from lab.features.slurm.holder import hold_until_end
from lab.words import clip_end

_DEADLINE_S = 30.0
_REQUEST_S = 20
"""Deadline of one request to the API server."""
_LONGEST = 600
SILENCE_S = 8.0
"""A node sends a beat every two seconds; after this time without one, its machine or its network is lost."""


def refuse_absence() -> None:
    """Refuse to continue without kubectl.

    Raises:
        EngineAbsent: It is not on PATH.
    """
    if shutil.which("kubectl") is None:
        hint = "install kubectl, and check it with `kubectl cluster-info`"
        raise EngineAbsent("the kubernetes engine needs kubectl, which is not on PATH", hint)


class Target(NamedTuple):
    """Which cluster of Kubernetes, and where in it."""

    context: str = ""
    """Of kubectl's configuration; empty: its current one, or the service account of a pod."""
    namespace: str = ""
    """Empty: that of the context."""

    def argv(self, *words: str) -> list[str]:
        """Return the command line of kubectl."""
        context = [f"--context={self.context}"] if self.context else []
        return ["kubectl", *context, *([f"--namespace={self.namespace}"] if self.namespace else []), *words]

    def run(self, *words: str, text: str = "", deadline_s: float = _DEADLINE_S) -> subprocess.CompletedProcess[str]:
        """Run kubectl to its end with `text` as its input.

        Raises:
            EngineUnavailable: It cannot be started, or does not end in time.
        """
        silence = f"the API server did not answer `kubectl {words[0]}`", _REACH
        return run_client(self.argv(f"--request-timeout={_REQUEST_S}s", *words), silence, deadline_s, text)

    def ask(self, *words: str, text: str = "", deadline_s: float = _DEADLINE_S) -> str:
        """Return the output of kubectl; empty for an object that does not exist.

        Raises:
            LabError: It fails.
        """
        done = self.run(*words, text=text, deadline_s=deadline_s)
        if done.returncode and not (_NO_OBJECT.search(done.stderr) and words[0] == "get"):
            raise explain_error(done.stderr)
        return done.stdout

    def list(self, what: str, *words: str) -> list[dict[str, Any]]:
        """Return objects of a kind.

        Raises:
            LabError: The API server refuses, or does not answer.
        """
        text = self.ask("get", what, "--output=json", *words)
        with reading_answer():
            return [{**item} for item in json.loads(text)["items"]] if text.strip() else []

    def resolved(self) -> Target:
        """Return the context and the namespace by name, so that another current context does not matter later.

        Raises:
            LabError: There is no such context.
        """
        done = self.run("config", "view", "--minify", "--output=json")
        if done.returncode:
            if self.context:
                raise explain_error(done.stderr)
            return self  # kubectl has no configuration, and may run in a pod
        with reading_answer():
            config = json.loads(done.stdout)
            own = next((one.get("context") or {} for one in config.get("contexts") or ()), {})
            return Target(config.get("current-context", ""), self.namespace or own.get("namespace") or "default")


@contextmanager
def reading_answer() -> Iterator[None]:
    """Turn errors of reading an answer that is not Kubernetes' into an EngineUnavailable."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        why = f"cannot read the answer of the API server: {type(error).__name__}: {clip_end(str(error), _LONGEST)}"
        raise EngineUnavailable(why, _REACH) from None


_NO_OBJECT = re.compile(r"\(NotFound\): (?!namespaces)")
_REACH = "see `kubectl cluster-info`; KUBECONFIG or --allocation context=NAME selects another cluster"
_ROLE = "ask for the role in docs/kubernetes-role.yaml, or use --allocation namespace=NAME"
_PREFIX = re.compile(r"^(?:error: |Error from server(?: \((\w+)\))?: |error when creating \"STDIN\": )+")
_ERRORS: tuple[tuple[str, type[LabError], str], ...] = (
    (r"exceeded quota", ClusterUnfit, "use fewer nodes, or less with --cpus, --memory, or --gpus"),
    (r"failed quota: .*must specify", ClusterUnfit, "the quota needs limits: use --cpus and --memory"),
    (r"violates PodSecurity|PodSecurityPolic", ClusterUnfit, "--strict makes pods that the level `restricted` allows"),
    (r"context .*(does not exist|not found)|cannot locate context|no context", ClusterUnfit,
     "`kubectl config get-contexts` lists the contexts"),
    (r"namespaces? .*not found|namespace .*being terminated", ClusterUnfit,
     "`kubectl get namespaces` lists them; use --allocation namespace=NAME"),
    (r"Unauthorized|must be logged in|getting credentials|provide credentials", EngineUnavailable,
     "your credentials are wrong or expired: log in to Kubernetes again"),
    (r"localhost:8080", EngineUnavailable, "kubectl has no configuration: set KUBECONFIG"),
    (r"refused|no such host|timeout|timed out|unable to connect|TLS handshake|x509|deadline exceeded|EOF|reset by peer|"
     r"unable to handle the request|no route|unreachable|shutting down", EngineUnavailable, _REACH),
    (r"forbidden", ClusterUnfit, _ROLE),
)  # fmt: skip
"""What kubectl or the API server says, the error that it is, and what to do."""


def explain_error(stderr: str) -> LabError:
    """Return an error for the error output of kubectl."""
    line = error_line(stderr)
    for pattern, kind, hint in _ERRORS:
        if re.search(pattern, line, re.IGNORECASE):
            who = "Kubernetes does not answer" if kind is EngineUnavailable else "Kubernetes refuses"
            return kind(f"{who}: {line}", hint)
    return ClusterUnfit(f"kubectl failed: {line or 'without a message'}", "see `kubectl cluster-info`")


def error_line(stderr: str) -> str:
    """Return the line of kubectl's error output that says what happened, without prefixes."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not re.match(r"[EWI]\d{4} ", line)]
    lines = [line for line in lines if not line.startswith("command terminated with")] or lines
    line = next((line for line in lines if line.startswith("Error from server")), lines[-1] if lines else "")
    return clip_end(_PREFIX.sub("", line), _LONGEST)


# -- pods


_FINAL = re.compile(r"ImagePullBackOff|ErrImageNeverPull|InvalidImageName|ImageInspectError|RunContainerError|"
                    r"CreateContainer(Config)?Error|CrashLoopBackOff")  # fmt: skip
"""Reasons for waiting that do not go away by themselves."""
_WHY_FINAL = {
    "ImagePullBackOff": "name an image that the machines can pull: --image, or --allocation registry=HOST",
    "ErrImageNeverPull": "load the image on the machines, or change imagePullPolicy in the template",
    "InvalidImageName": "name an image as in `pytorch/pytorch:latest`",
    "CreateContainerConfigError": "change the template, or create what it names",
}


class Pod(NamedTuple):
    """What the API server reports about a node's pod."""

    name: str
    uid: str
    node: str
    cluster: str
    address: str
    host: str
    phase: str
    waiting: tuple[str, str]
    """Reason and message of a container that does not run yet; empty words otherwise."""
    ended: tuple[str, str]
    """The same of one that has ended."""
    unscheduled: str
    """Why it has no machine."""
    reason: str
    """Why Kubernetes ended it, such as `Evicted`."""
    message: str
    is_leaving: bool
    """Whether it is being deleted."""
    annotations: Mapping[str, str]

    @property
    def is_ready(self) -> bool:
        """Whether commands can run in it."""
        return self.phase == "Running" and bool(self.address) and not self.is_leaving and not any(self.waiting)

    @property
    def problem(self) -> tuple[str, str]:
        """Why it will not run: the end of a sentence that begins with the node's name, and what to do."""
        reason, message = self.waiting
        if _FINAL.search(reason):
            return f"cannot start: {_join(reason, message)}", _WHY_FINAL.get(reason, "change the image or the template")
        if self.phase in ("Failed", "Succeeded") or self.is_leaving:
            return explain_end(self), "see `kubectl get events`"
        return "", ""


@reading_answer()
def read_pod(item: Mapping[str, Any]) -> Pod:
    """Read a pod of the lab from the API server's answer."""
    metadata, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    states = [one.get("state") or {} for one in containers]
    waiting = [one["waiting"] for one in states if "waiting" in one]
    waiting.sort(key=lambda one: not _FINAL.search(one.get("reason", "")))
    ended = [one["terminated"] for one in states[len(states) - len(status.get("containerStatuses") or ()) :]
             if "terminated" in one]  # fmt: skip
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    whole = status if "reason" in status else conditions.get("DisruptionTarget", {})
    labels = metadata.get("labels") or {}
    pod = Pod(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        node=labels.get(label.NODE, metadata["name"]),
        cluster=labels.get(label.CLUSTER, ""),
        address=status.get("podIP", ""),
        host=spec.get("nodeName", ""),
        phase=status.get("phase", ""),
        waiting=_words_of(waiting),
        ended=_words_of(ended),
        unscheduled=scheduled.get("message", "") if scheduled.get("status") == "False" else "",
        reason=whole.get("reason", ""),
        message=whole.get("message", ""),
        is_leaving="deletionTimestamp" in metadata,
        annotations=metadata.get("annotations") or {},
    )
    # a TypeError if one is no text
    "".join([*pod[:7], *pod.waiting, *pod.ended, *pod[9:12], *pod.annotations.values()])
    return pod


def _words_of(states: list[dict[str, Any]]) -> tuple[str, str]:
    first = states[0] if states else {}
    return first.get("reason", ""), " ".join(str(first.get("message", "")).split())


def _join(reason: str, message: str) -> str:
    return clip_end(f"{reason} ({message})" if message else reason, _LONGEST)


STREAM_ENDED = "lost its connection: the API server, or a proxy before it, ended the stream"


def explain_end(pod: Pod | None, events: Mapping[str, str] | None = None) -> str:
    """Return Kubernetes' reason for a node's end, as the end of a sentence; empty if its pod runs.

    Args:
        pod: None: the API server no longer has it.
        events: Messages about the pod by their reason.
    """
    known = events or {}
    if (preempted := next((known[name] for name in ("Preempted", "Preempting") if name in known), None)) is not None:
        return f"was preempted by Kubernetes: {preempted}"
    if pod is not None and pod.reason:
        return f"was ended by Kubernetes: {_join(pod.reason, ' '.join(pod.message.split()))}"
    if (cause := next((name for name in ("TaintManagerEviction", "Evicted") if name in known), "")) != "":
        return f"was ended by Kubernetes: {_join(cause, known[cause])}"
    if pod is None or pod.is_leaving:
        return "was ended: somebody deleted the pod"
    if pod.ended[0] == "OOMKilled":
        return "was killed by the kernel: out of memory"
    if pod.phase == "Succeeded":  # its first process ends so after its agent, which ends with the stream
        return STREAM_ENDED
    if pod.phase == "Failed":
        return f"was ended by Kubernetes: {_join(pod.ended[0] or pod.phase, pod.ended[1])}"
    return ""


@reading_answer()
def read_events(items: list[dict[str, Any]], uid: str) -> dict[str, str]:
    """Return the messages of events of the pod with this identity by their reason, the latest one last.

    The taint manager's events have no identity; such ones belong to this pod if they came after its first own event.
    """
    messages, is_later = dict[str, str](), False
    for one in sorted(items, key=lambda one: one.get("lastTimestamp") or one.get("eventTime") or ""):
        whose = one["involvedObject"].get("uid", "")
        is_later = is_later or whose == uid
        if whose == uid or (is_later and not whose):
            messages[one.get("reason", "")] = " ".join(str(one.get("message", "")).split())
    return messages


def events_of(target: Target, name: str, uid: str) -> dict[str, str]:
    """Return the events of the pod with this name and identity; none if they may not be read."""
    with suppress(LabError):
        return read_events(target.list("events", f"--field-selector=involvedObject.name={name}"), uid)
    return {}


@reading_answer()
def why_not_ready(host: Mapping[str, Any]) -> str:
    """Return Kubernetes' reason why a machine is not ready; empty if it is."""
    ready = next((one for one in (host.get("status") or {}).get("conditions") or () if one["type"] == "Ready"), None)
    return "" if ready is None or ready["status"] == "True" else _join(ready["reason"], ready.get("message", ""))


# -- the process that holds the agents


def main() -> None:
    """Hold the agents that the last argument describes; then delete the cluster's ConfigMap, which owns its pods."""
    request: dict[str, Any] = json.loads(sys.argv[-1])
    target, owner = Target(*request["target"]), f"configmap/{request['owner']}"

    def is_known() -> bool:
        with suppress(LabError):
            return bool(target.ask("get", owner, "--output=name").strip())
        return True

    release = target.argv("delete", owner, "--ignore-not-found", "--wait=false")
    os.chdir(Path(request["folder"]).parent)
    hold_until_end(request, release, is_known, SILENCE_S)


if __name__ == "__main__":
    main()
