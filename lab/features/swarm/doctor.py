"""What `lab doctor` says of a swarm: each host's engine, clock, image, MTU, and the ports that they need."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection
from lab.engine.docker.image import DEFAULT_IMAGE, inspect_image
from lab.engine.doctor import Check, Wanted
from lab.errors import EngineUnavailable, LabError
from lab.features.swarm.hosts import OWNER, Host, Hosts, Settings
from lab.words import format_duration, listing

_CLOCK_S = 0.1
"""Clocks that differ by more are worth a word; what is measured over several hosts is corrected for that."""
_VXLAN_BYTES = 50
_OVERLAY_MTU = 1450
_OPEN = "open it in the firewalls"
_PORTS = {
    2377: "TCP 2377 (joining, to managers)",
    7946: "TCP and UDP 7946 (which node is where)",
    4789: "UDP 4789 (what nodes say to one another)",
}
_PROBE = """
import errno, fcntl, json, os, socket, struct, sys
said = json.loads(sys.argv[1])
shut = []
for port, kind, addresses in said["ports"]:
    for address in addresses:
        with socket.socket(socket.AF_INET, getattr(socket, "SOCK_" + kind)) as asking:
            asking.settimeout(2 if kind == "STREAM" else 0.3)
            try:
                asking.connect((address, port))
                if kind == "DGRAM":
                    asking.send(b"")
                    asking.recv(1)
            except socket.timeout:
                if kind == "STREAM":
                    shut.append([port, address])
            except OSError:
                shut.append([port, address])
mtu = None
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
    for _, name in socket.if_nameindex():
        try:
            found = fcntl.ioctl(asking, 0x8915, struct.pack("256s", name.encode()))
        except OSError:
            continue
        if socket.inet_ntoa(found[20:24]) == said["address"]:
            with open("/sys/class/net/%s/mtu" % name) as file:
                mtu = int(file.read())
print(json.dumps({"shut": shut, "mtu": mtu}))
"""
"""Run on a host, in its network. A datagram that nobody takes comes back as an error; others are not told of."""
_ANY_PYTHON = 'for python in python3 python; do command -v $python >/dev/null && exec $python -c "$0" "$1"; done'


class Clock(NamedTuple):
    """How a host's clock differs from ours."""

    ahead_s: float
    error_s: float


def examine(hosts: Hosts, settings: Settings, wanted: Wanted) -> list[Check]:
    """Everything that could keep tasks from being nodes."""
    known = list(hosts.known.values())
    managers = [host.name for host in known if host.manages]
    found = f"a swarm of {len(known)} hosts, managed by {listing(managers)}"
    checks = [Check("ok", "engine", found), _shared(settings, len(known))]
    image = wanted.image or DEFAULT_IMAGE
    each = hosts.each(lambda name: _host_checks(hosts, hosts.known[name], image), hosts.known)
    for host in known:
        checks += each.get(host.name) or [_silent(hosts, host)]
    return checks


def _shared(settings: Settings, hosts: int) -> Check:
    if settings.shared is not None:
        return Check("ok", "shared", f"/shared of all nodes is in {settings.shared} of every host")
    fix = "name a folder that all hosts have in common: docs/swarm.md"
    return Check.judge("shared", "/shared is one for each host", hosts > 1, fix)


def _silent(hosts: Hosts, host: Host) -> Check:
    why, fix = "its engine does not answer", "start it; `docker node ls` shows what Swarm hears of it"
    try:
        hosts.engine(host.name)
    except EngineUnavailable as error:
        why, fix = error.message.removeprefix(f"host {host.name}: "), error.hint
    return Check("failed", f"host {host.name}", why, fix)


def _host_checks(hosts: Hosts, host: Host, image: str) -> list[Check]:
    hosts.await_sign(host.name)
    connection, what = hosts.engine(host.name).connection, f"host {host.name}"
    found = f"docker {host.engine}, {hosts.address(host.name) or 'the manager'}"
    fix = f"docker node update --availability active {host.name}" if host.ready else "see its engine's log"
    usable = host.ready and host.takes_tasks
    checks = [
        Check.judge(what, found if usable else f"{found}: Swarm gives it no tasks", not usable, fix, "failed"),
        clock_check(what, clock_of(connection)),
    ]
    if inspect_image(connection.client, image) is None:
        return [*checks, Check("warning", what, f"{image} is not there yet", "`lab up` pulls it there, or sends it")]
    seen = _probe(connection, host, hosts, image)
    return [*checks, Check("ok", what, image), *_network_checks(what, hosts.known, seen)]


def clock_of(connection: Connection) -> Clock:
    """How the clock of an engine differs from ours, of the quickest of a few answers."""
    found = []
    for _ in range(3):
        before = time.time()
        told = connection.ask("GET", "/info")["SystemTime"]
        after = time.time()
        error_s = (after - before) / 2
        found.append(Clock(read_time(told) - before - error_s, error_s))
    return min(found, key=lambda clock: clock.error_s)


def read_time(text: str) -> float:
    """Seconds since 1970 of a time as engines write it, with up to nine digits of a second."""
    found = re.fullmatch(r"([^.Z+]*?)(\.\d+)?(Z|[+-]\d\d:\d\d)", text)
    if found is None:
        raise ValueError(f"{text!r} is no time")
    whole = datetime.fromisoformat(found[1] + found[3].replace("Z", "+00:00"))
    return whole.timestamp() + float(found[2] or 0)


def clock_check(what: str, clock: Clock) -> Check:
    """What is to be said of a clock: nothing, where it may as well be right."""
    off_s = abs(clock.ahead_s)
    error = f"± {format_duration(clock.error_s)}"
    if off_s <= max(_CLOCK_S, clock.error_s):
        return Check("ok", what, f"its clock is ours ({error})")
    way = "ahead of" if clock.ahead_s > 0 else "behind"
    return Check("warning", what, f"its clock is {format_duration(off_s)} {way} ours ({error})", "have NTP set it")


def _probe(connection: Connection, host: Host, hosts: Hosts, image: str) -> Mapping[str, Any]:
    others = [one for one in hosts.known.values() if one.id != host.id and one.ready]
    addresses = [one.address for one in others]
    ports = [
        (2377, "STREAM", [one.address for one in others if one.manages]),
        (7946, "STREAM", addresses),
        (7946, "DGRAM", addresses),
        (4789, "DGRAM", addresses),
    ]
    body = {
        "Image": image,
        "Entrypoint": ["/bin/sh", "-c", _ANY_PYTHON, _PROBE, json.dumps({"ports": ports, "address": host.address})],
        "Labels": {OWNER: label.owner(), label.CLUSTER: "doctor"},
        "HostConfig": {"NetworkMode": "host", "CapDrop": ["ALL"], "LogConfig": {"Type": "json-file"}},
    }
    try:
        found: Mapping[str, Any] = json.loads(connection.run_container(body)[1] or "{}")
    except (LabError, ValueError):
        return {}
    return found


def _network_checks(what: str, known: Mapping[str, Host], found: Mapping[str, Any]) -> list[Check]:
    if "shut" not in found:
        unknown = "its network cannot be looked at: the image has no Python"
        return [Check("warning", what, unknown, "use another --image")]
    names = {one.address: one.name for one in known.values()}
    shut: dict[int, list[str]] = {}
    for port, address in found["shut"]:
        shut.setdefault(port, []).append(names.get(address, address))
    checks = [
        Check("failed", what, f"{_PORTS[port]} of {listing(dict.fromkeys(there))} is shut to it", _OPEN)
        for port, there in sorted(shut.items())
    ] or [Check("ok", what, "the others' ports 2377, 7946 and 4789 are not shut to it")]
    mtu, least = found.get("mtu"), _OVERLAY_MTU + _VXLAN_BYTES
    if mtu is not None:
        needed = (
            f"packets of the cluster's network, of up to {_OVERLAY_MTU} bytes and {_VXLAN_BYTES} of VXLAN, do not fit"
        )
        told = f"MTU {mtu}: {needed}" if mtu < least else f"MTU {mtu}"
        checks.append(Check.judge(what, told, mtu < least, f"set it to {least} or more", "failed"))
    return checks
