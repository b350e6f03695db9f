"""A connection behind TLS as a plain socket: both ways at once, and each way ended alone."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.features.remote.streams import TlsEnd, connect_locally

Serve = Callable[[Callable[[ssl.SSLSocket], None]], socket.socket]
MUCH = os.urandom(3_000_000)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a server that does something with its one connection; returns a plain socket to it."""
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("localhost", 0))
    threads: list[threading.Thread] = []
    opened: list[socket.socket] = []

    def start(action: Callable[[ssl.SSLSocket], None]) -> socket.socket:
        def run() -> None:
            with context.wrap_socket(listener.accept()[0], server_side=True, suppress_ragged_eofs=True) as connection:
                action(connection)

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        opened.append(
            connect_locally(TlsEnd(f"https://localhost:{listener.getsockname()[1]}", certificate, None, 20.0))
        )
        opened[-1].settimeout(20.0)
        return opened[-1]

    yield start
    for stream in opened:
        stream.close()
    for thread in threads:
        thread.join(20.0)
        assert not thread.is_alive()
    listener.close()


def read_all(stream: socket.socket) -> bytes:
    data = b""
    while chunk := stream.recv(1 << 16):
        data += chunk
    return data


def test_what_is_said_after_the_other_way_was_ended_arrives(serve: Serve) -> None:
    def answer(connection: ssl.SSLSocket) -> None:
        received = b""
        while chunk := connection.recv(1 << 16):
            received += chunk
        connection.sendall(received)

    stream = serve(answer)
    stream.sendall(MUCH)
    stream.shutdown(socket.SHUT_WR)
    assert read_all(stream) == MUCH


def test_much_goes_both_ways_at_once(serve: Serve) -> None:
    def echo(connection: ssl.SSLSocket) -> None:
        left = len(MUCH)
        while left > 0:
            chunk = connection.recv(1 << 16)
            connection.sendall(chunk)
            left -= len(chunk)

    stream = serve(echo)
    sending = threading.Thread(target=stream.sendall, args=(MUCH,))
    sending.start()
    assert read_all(stream) == MUCH
    sending.join()


def test_who_closes_the_socket_hangs_up(serve: Serve) -> None:
    ended = threading.Event()

    def wait(connection: ssl.SSLSocket) -> None:
        try:
            while connection.recv(1 << 16):
                pass
        except OSError:
            pass
        ended.set()

    stream = serve(wait)
    stream.sendall(b"x")
    stream.close()
    assert ended.wait(20.0)


def test_what_the_engine_ends_is_over(serve: Serve) -> None:
    assert read_all(serve(lambda _: None)) == b""


def test_an_engine_that_hangs_up_at_once_is_an_error() -> None:
    with socket.create_server(("localhost", 0)) as silent:

        def hang_up() -> None:
            silent.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(OSError):  # noqa: PT011 - of several kinds
            TlsEnd(f"https://localhost:{silent.getsockname()[1]}", authorities=True, own=None, timeout_s=5.0)
