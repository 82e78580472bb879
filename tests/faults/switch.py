"""The network between namespaces: a process that reads IP packets from a TUN device of each host, and passes them on
according to the rules. It ends when its parent does.

python -m tests.faults.switch '{"seed": 7, "hosts": {"n1": {"descriptor": 5, "address": "198.18.7.1"}, ...}}'

A line on its input is a list of rules, which apply from then on; a line with the numbers of passed and lost packets
comes back once they do. Packets that the process handles slowly are late: no check depends on its speed.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import json
import os
import select
import socket
import sys
import time
from random import Random
from typing import Any

from tests.faults.rules import Rule, Weather, packet_of

PACKET_BYTES_MAX = 65_536
PACKETS_PER_LOOK = 64
WAITING_BYTES_MAX = 256 << 20
"""Packets in flight; more are lost, as in a router."""


class Switch:
    def __init__(self, seed: int, hosts: dict[str, dict[str, Any]]) -> None:
        self.weather, self._chance = Weather(), Random(seed)
        self._names = {socket.inet_aton(host["address"]): name for name, host in hosts.items()}
        self.descriptors = {name: int(host["descriptor"]) for name, host in hosts.items()}
        self._under_way: list[tuple[float, int, int, bytes]] = []
        self._number = self._waiting_bytes = 0
        self.passed = self.lost = 0

    def take(self, descriptor: int) -> None:
        """Packets that a host has sent."""
        for _ in range(PACKETS_PER_LOOK):
            try:
                raw = os.read(descriptor, PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            packet = packet_of(raw, self._names)
            if packet is None:
                continue
            now = time.monotonic()
            arrivals = self.weather.arrivals(packet, now, self._chance)
            if not arrivals or self._waiting_bytes > WAITING_BYTES_MAX:
                self.lost += 1
            for at in arrivals:
                self._send(self.descriptors[packet.destination], raw, at, now)

    def _send(self, target: int, raw: bytes, at: float, now: float) -> None:
        if at <= now:
            self._give(target, raw)
            return
        self._number += 1
        self._waiting_bytes += len(raw)
        heapq.heappush(self._under_way, (at, self._number, target, raw))

    def _give(self, target: int, raw: bytes) -> None:
        try:
            os.write(target, raw)
            self.passed += 1
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EIO, errno.EINVAL, errno.ENOBUFS):
                raise
            self.lost += 1

    def deliver(self) -> float | None:
        """Delivers all due packets; returns the seconds until the next one is due."""
        while self._under_way:
            left = self._under_way[0][0] - time.monotonic()
            if left > 0:
                return left
            _, _, target, raw = heapq.heappop(self._under_way)
            self._waiting_bytes -= len(raw)
            self._give(target, raw)
        return None


def main(given: str) -> None:
    found = json.loads(given)
    switch = Switch(found["seed"], found["hosts"])
    poll = select.epoll()
    for descriptor in (*switch.descriptors.values(), sys.stdin.fileno()):
        poll.register(descriptor, select.EPOLLIN)
    while True:
        left = switch.deliver()
        for descriptor, _ in poll.poll(None if left is None else max(left, 0.0005)):
            if descriptor != sys.stdin.fileno():
                switch.take(descriptor)
                continue
            line = sys.stdin.buffer.readline()
            if not line:
                return
            switch.weather.becomes(map(Rule.of, json.loads(line)))
            sys.stdout.write(json.dumps({"passed": switch.passed, "lost": switch.lost}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1])
