"""A bare relay: client -> A -> B; each appends a message to a file and calls fdatasync. What a replicated journal can
reach at best with two Python processes on this disk.

    python relay.py PORT FILE [PORT-OF-B]
"""

from __future__ import annotations

import os
import socket
import sys

SIZE = 100


def received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            sys.exit(0)
        data += part
    return data


def main() -> None:
    port, path = int(sys.argv[1]), sys.argv[2]
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    listening = socket.create_server(("127.0.0.1", port))
    onward = socket.create_connection(("127.0.0.1", int(sys.argv[3]))) if len(sys.argv) > 3 else None
    connection, _ = listening.accept()
    for each in (connection, onward):
        if each is not None:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        message = received(connection, SIZE)
        if onward is not None:
            onward.sendall(message)
        os.write(file, message)
        os.fdatasync(file)
        if onward is not None:
            received(onward, 1)
        connection.sendall(b"k")


if __name__ == "__main__":
    main()
