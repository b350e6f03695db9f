"""Closes thousands of connections: to itself, to the rendezvous store, and from ports that others may want.

The kernel keeps their ports for a minute; whoever comes next gets other nodes.
"""

import contextlib
import os
import socket
import time

END = time.monotonic() + 12


def close_connections(count, address, server=None, source=None):
    with contextlib.suppress(OSError):
        for _ in range(count):
            client = socket.socket()
            if source:
                client.bind(source)
            client.connect(address)
            accepted = server.accept()[0] if server else None
            client.close()
            if accepted:
                accepted.close()
            if time.monotonic() > END:
                return


with socket.create_server(("127.0.0.1", 0)) as server:
    for port in (12355, 29500, 28411):
        close_connections(1, server.getsockname(), server, ("127.0.0.1", port))
    close_connections(7000, server.getsockname(), server)
close_connections(3000, (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
