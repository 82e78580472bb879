"""The network between loopback addresses, where namespaces are not permitted: relays of TCP and UDP that apply the
rules. It ends when its parent does.

python -m tests.faults.relay '{"seed": 7, "ports": {"http": 7401, ...}, "hosts": {"n1": {"listens": ...}, ...}}'

Every host is known to the others by an address on whose ports this process listens. The source of a connection is found
by the socket at the other end: its process has its own address on its command line. Bytes that cannot be lost from the
middle of a TCP connection wait until the rules let them pass, in order; datagrams are lost, delayed, and duplicated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections import deque
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.rules import TCP, UDP, Packet, Rule, Weather

CHUNK_BYTES = 16_384
WAITING_CHUNKS_MAX = 64
AGAIN_S = 0.2
"""After a random loss, as TCP retransmits."""
CLIENT = "client"
OWN_ADDRESS = (b"--advertise-host=", b"--listen=")
"""Options of nodes and of copies of a journal."""


def process_with(port: int) -> str:
    """The command line of the process whose loopback socket has this port, as far as this user may see it."""
    inodes = set()
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if int(fields[1].rpartition(":")[2], 16) == port and fields[9] != "0":
            inodes.add(f"socket:[{fields[9]}]")
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if any(each in command for each in OWN_ADDRESS) and int(entry.name) != os.getpid():
                for link in (entry / "fd").iterdir():
                    with contextlib.suppress(OSError):
                        if os.readlink(link) in inodes:
                            return command.decode(errors="replace")
    return ""


class Relay:
    def __init__(self, given: dict[str, Any]) -> None:
        self.hosts: dict[str, dict[str, str]] = given["hosts"]
        self.ports: dict[str, int] = given["ports"]
        self.weather, self.chance = Weather(), Random(given["seed"])
        self.changed = asyncio.Event()
        self.passed = self.lost = 0
        self._sockets: dict[str, asyncio.DatagramTransport] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        for host, at in self.hosts.items():
            for port in self.ports.values():
                await asyncio.start_server(partial(self._accept, host, port), at["advertised"], port)
            loop = asyncio.get_running_loop()
            self._sockets[host], _ = await loop.create_datagram_endpoint(
                partial(Datagrams, self, host), local_addr=(at["advertised"], self.ports["peer"])
            )

    def _keep(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def become(self, rules: list[Rule]) -> None:
        self.weather.becomes(rules)
        self.changed.set()
        self.changed = asyncio.Event()

    def host_with(self, command: str) -> str:
        for host, at in self.hosts.items():
            if f"--advertise-host={at['advertised']}\0" in command + "\0" or f"--listen={at['listens']}:" in command:
                return host
        return CLIENT

    async def _accept(self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        source = self.host_with(process_with(peer[1])) if peer is not None else CLIENT
        try:
            there_reader, there = await asyncio.open_connection(self.hosts[host]["listens"], port)
        except OSError:
            writer.transport.abort()
            return
        self._keep(Direction(self, source, host, port).carry(reader, there))
        self._keep(Direction(self, host, source, port).carry(there_reader, writer))

    def datagram(self, data: bytes, address: str, destination: str) -> None:
        """The host that listens at `address` has sent it to the host known as `destination`."""
        source = next((host for host, at in self.hosts.items() if at["listens"] == address), None)
        if source is None:
            return
        loop, port = asyncio.get_running_loop(), self.ports["peer"]
        packet = Packet(source, destination, UDP, (port, port), len(data), len(data) + 28)
        arrivals = self.weather.arrivals(packet, loop.time(), self.chance)
        self.lost += not arrivals
        for at in arrivals:
            target = (self.hosts[destination]["listens"], port)
            loop.call_at(at, self._sockets[source].sendto, data, target)


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self, relay: Relay, host: str) -> None:
        self._relay, self._host = relay, host

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self._relay.datagram(data, addr[0], self._host)


class Direction:
    """One of the two directions of a connection."""

    def __init__(self, relay: Relay, source: str, destination: str, port: int) -> None:
        self._relay, self._source, self._destination, self._port = relay, source, destination, port
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._more, self._less = asyncio.Event(), asyncio.Event()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        giving = asyncio.ensure_future(self._give(writer))
        latest = 0.0
        data = b"begin"
        while data:
            try:
                data = await reader.read(CHUNK_BYTES)
            except OSError:
                data = b""
            latest = max(latest, await self._arrival(len(data)))
            self._waiting.append((latest, data))
            self._more.set()
            while len(self._waiting) >= WAITING_CHUNKS_MAX and not giving.done():
                self._less.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._less.wait(), AGAIN_S)
        await giving

    async def _arrival(self, length: int) -> float:
        """When it arrives; the end of a connection arrives after its bytes."""
        loop, relay = asyncio.get_running_loop(), self._relay
        packet = Packet(self._source, self._destination, TCP, (0, self._port), max(length, 1), length + 40)
        while not (arrivals := relay.weather.arrivals(packet, loop.time(), relay.chance)):
            relay.lost += 1
            rule, changed = relay.weather.rule_for(packet), relay.changed
            wait_s = None if rule is not None and rule.loss == 1.0 else AGAIN_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), wait_s)
        relay.passed += 1
        return max(arrivals)

    async def _give(self, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while True:
                while not self._waiting:
                    self._more.clear()
                    await self._more.wait()
                at, data = self._waiting.popleft()
                self._less.set()
                await asyncio.sleep(max(0.0, at - loop.time()))
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        writer.close()


async def main(given: str) -> None:
    relay = Relay(json.loads(given))
    await relay.start()
    loop, lines = asyncio.get_running_loop(), asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        relay.become([Rule.of(each) for each in json.loads(line)])
        sys.stdout.write(json.dumps({"passed": relay.passed, "lost": relay.lost}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1]))
