"""Send to addresses and ports in every way that a socket offers; note what connects and which names resolve.

Arguments: a JSON object with `addresses`, `ports`, `names` to resolve, and `peers`, the addresses of its own cluster.
"""

import itertools
import json
import os
import socket
import sys
import time

import torch
import torch.distributed as dist

from lab import note

ASKED = json.loads(sys.argv[1])
TIMEOUT_S = 0.3
MOST_TARGETS = 16
"""At a time: each takes a score of open files."""
SO_BINDTODEVICE, IP_MULTICAST_ALL, IPV6_MULTICAST_IF, SO_MARK = 25, 49, 17, 36
SCTP, UDPLITE, MPTCP = 132, 136, 262
KINDS = [
    ("tcp", socket.SOCK_STREAM, 0),
    ("udp", socket.SOCK_DGRAM, 0),
    ("udplite", socket.SOCK_DGRAM, UDPLITE),
    ("mptcp", socket.SOCK_STREAM, MPTCP),
    ("sctp", socket.SOCK_SEQPACKET, SCTP),
]


def own_address():
    return socket.gethostbyname(socket.gethostname())


def devices():
    return [name for _, name in socket.if_nameindex() if name != "lo"]


def plain(_):
    pass


def bound_to_own_address(sock):
    if sock.family == socket.AF_INET:
        sock.bind((own_address(), 0))


def bound_to_device(sock):
    sock.setsockopt(socket.SOL_SOCKET, SO_BINDTODEVICE, devices()[0].encode() + b"\0")


def past_routes(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)


def past_routes_on_device(sock):
    bound_to_device(sock)
    past_routes(sock)


def multicast_by_device(sock):
    index = socket.if_nametoindex(devices()[0])
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own_address()))
    else:
        sock.setsockopt(socket.IPPROTO_IPV6, IPV6_MULTICAST_IF, index)


def by_a_router(sock):
    """A loose source route over a peer."""
    if sock.family == socket.AF_INET:
        hops = b"".join(map(socket.inet_aton, [*ASKED["peers"], own_address()][:1]))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes([1, 131, 3 + len(hops), 4]) + hops)


WAYS = (
    plain,
    bound_to_own_address,
    bound_to_device,
    past_routes,
    past_routes_on_device,
    multicast_by_device,
    by_a_router,
)


def send_to(address, port):
    """Try each kind of socket in each way; those that may yet connect, with what they would be then."""
    waiting = []
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for (kind, of, protocol), way in itertools.product(KINDS, WAYS):
        try:
            sock = socket.socket(family, of, protocol)
        except OSError:
            continue
        try:
            sock.setblocking(False)
            if of == socket.SOCK_DGRAM:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            way(sock)
            scope = socket.if_nametoindex(devices()[0])
            target = (address, port) if family == socket.AF_INET else (address, port, 0, scope)
            if of == socket.SOCK_DGRAM:
                sock.sendto(f"{kind} {way.__name__} to {address}".encode(), target)
                sock.close()
            else:
                waiting.append((sock, f"{kind} {way.__name__} to {address}:{port}"))
                sock.connect(target)
        except BlockingIOError:
            pass
        except OSError:
            sock.close()
    return waiting


def connected(waiting):
    """Wait for sockets to connect; what those are that did."""
    made, end = [], time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        for one in list(waiting):
            sock, what = one
            try:
                sock.getpeername()
                made.append(what)
                waiting.remove(one)
                sock.close()
            except OSError:
                continue
        time.sleep(0.02)
    for sock, _ in waiting:
        sock.close()
    return made


def resolver_ports():
    """Ports at which something listens on a loopback address that is not 127.0.0.1."""
    found = {53}
    for table in ("tcp", "udp"):
        with open(f"/proc/net/{table}") as file:
            for line in file.readlines()[1:]:
                address, _, port = line.split()[1].partition(":")
                if address.upper() == "0B00007F":
                    found.add(int(port, 16))
    return sorted(found)


def ask_resolver(name):
    """Ask the engine's resolver itself, at each of its ports, over UDP and TCP; what answers."""
    words = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + words + b"\0\0\x01\0\x01"
    answers = []
    for port, address in itertools.product(resolver_ports(), ("127.0.0.11", "::ffff:127.0.0.11")):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            with socket.socket(family, kind) as sock:
                sock.settimeout(TIMEOUT_S)
                try:
                    sock.connect((address, port))
                    sock.sendall(query if kind == socket.SOCK_DGRAM else len(query).to_bytes(2, "big") + query)
                    if sock.recv(512):
                        answers.append(f"{address}:{port} answers {kind.name} for {name}")
                except OSError:
                    continue
    return answers


def resolve(name):
    """The addresses of a name, or the name of an address; None where there is none."""
    try:
        if name.replace(".", "").isdigit():
            return socket.gethostbyaddr(name)[0]
        return sorted({info[4][0] for info in socket.getaddrinfo(name, None)})
    except OSError:
        return None


dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
note("total", total)
note("uid", os.getuid())
if dist.get_rank() == 0:
    began = time.monotonic()
    note("names", {name: resolve(name) for name in ASKED["names"]})
    note("names_took_s", time.monotonic() - began)
    note("resolver", [answer for name in ASKED["names"][:3] for answer in ask_resolver(name)])
    found, targets = [], list(itertools.product(ASKED["addresses"], ASKED["ports"]))
    while targets:
        found += connected([one for target in targets[:MOST_TARGETS] for one in send_to(*target)])
        del targets[:MOST_TARGETS]
    note("connected", found)
dist.barrier()
