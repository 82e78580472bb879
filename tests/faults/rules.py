"""The fate of a packet: lost, late, slow, duplicated, or unchanged. Pure: time and random numbers are handed in.

Rules are examined in order, and the first that matches a packet decides; a packet without a matching rule passes at
once. A rule names a source and a destination, so a link may be broken in one direction alone (issue 4, "Shown by" 2;
issue 5).

`carrying`: only packets with a payload. If responses are lost and bare acknowledgements of TCP are not, requests
continue to arrive for as long as the client sends them: losing all packets of a direction would end them after a few.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from random import Random
from typing import Any

ANY = "*"
TCP, UDP = 6, 17
IP_HEADER = struct.Struct("!BxHxxxxxBxx4s4s")
PORTS = struct.Struct("!HH")


@dataclass(frozen=True, slots=True)
class Packet:
    """`source` and `destination` are names of hosts. `carries`: bytes of the payload."""

    source: str
    destination: str
    protocol: int
    ports: tuple[int, int]
    carries: int
    length: int


@dataclass(frozen=True, slots=True)
class Rule:
    """`loss` and `duplicate` are probabilities; `jitter_s` is drawn for each packet, so it reorders; `rate_bytes_s`:
    capacity of the link per second, further packets are queued; 0: unlimited. `protocol`: TCP or UDP; 0: any. `port`:
    at either end; 0: any."""

    source: str = ANY
    destination: str = ANY
    protocol: int = 0
    port: int = 0
    carrying: bool = False
    loss: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0
    duplicate: float = 0.0
    rate_bytes_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a probability, it is {getattr(self, name)}")
        for name in ("delay_s", "jitter_s", "rate_bytes_s"):
            if not 0 <= getattr(self, name) < 1e12:
                raise ValueError(f"{name} must not be negative, it is {getattr(self, name)}")

    def fits(self, packet: Packet) -> bool:
        return (
            self.source in (ANY, packet.source)
            and self.destination in (ANY, packet.destination)
            and self.protocol in (0, packet.protocol)
            and (not self.port or self.port in packet.ports)
            and (not self.carrying or packet.carries > 0)
        )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Rule:
        known = {field.name for field in fields(cls)}
        if not given.keys() <= known:
            raise ValueError(f"a rule has no {', '.join(sorted(given.keys() - known))}")
        return cls(**given)

    def shown(self) -> dict[str, Any]:
        """The fields that differ from a rule without effect."""
        return {name: value for name, value in asdict(self).items() if value != getattr(NOTHING, name)}


NOTHING = Rule()


class Weather:
    """The current rules, and the queues of packets for slow links."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules: Sequence[Rule] = tuple(rules)
        self._free_at: dict[tuple[Rule, str, str], float] = {}

    def becomes(self, rules: Iterable[Rule]) -> None:
        """From now on. Packets that are already on their way arrive as decided before."""
        self.rules = tuple(rules)
        self._free_at.clear()

    def rule_for(self, packet: Packet) -> Rule | None:
        return next((rule for rule in self.rules if rule.fits(packet)), None)

    def arrivals(self, packet: Packet, now: float, chance: Random) -> tuple[float, ...]:
        """When copies of it arrive; empty: it is lost."""
        rule = self.rule_for(packet)
        if rule is None:
            return (now,)
        if rule.loss and chance.random() < rule.loss:
            return ()
        leaves = self._through(rule, packet, now)
        copies = 2 if rule.duplicate and chance.random() < rule.duplicate else 1
        return tuple(leaves + rule.delay_s + chance.random() * rule.jitter_s for _ in range(copies))

    def _through(self, rule: Rule, packet: Packet, now: float) -> float:
        """When the link has carried it."""
        if not rule.rate_bytes_s:
            return now
        line = (rule, packet.source, packet.destination)
        leaves = max(now, self._free_at.get(line, now)) + packet.length / rule.rate_bytes_s
        self._free_at[line] = leaves
        return leaves


def partition(*sides: Iterable[str]) -> list[Rule]:
    """No packet passes between any two sides."""
    groups = [tuple(side) for side in sides]
    return [
        Rule(source, destination, loss=1.0)
        for here in groups
        for there in groups
        if here is not there
        for source in here
        for destination in there
    ]


def packet_of(raw: bytes, names: Mapping[bytes, str]) -> Packet | None:
    """Of an IPv4 packet between two hosts with these addresses; None for anything else."""
    if len(raw) < IP_HEADER.size or raw[0] >> 4 != 4:
        return None
    first, length, protocol, source, destination = IP_HEADER.unpack_from(raw)
    if source not in names or destination not in names or length > len(raw):
        return None
    begin = (first & 15) * 4
    ports, header = (0, 0), 0
    if protocol in (TCP, UDP) and len(raw) >= begin + (20 if protocol == TCP else 8):
        ports = PORTS.unpack_from(raw, begin)
        header = (raw[begin + 12] >> 4) * 4 if protocol == TCP else 8
    return Packet(names[source], names[destination], protocol, ports, max(0, length - begin - header), length)
