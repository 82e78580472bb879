"""A write with a request id happens once, however often it arrives (M3).

The first result of each (client, sequence) is replicated state, so a retry finds it after a change of leader, a restart
or a snapshot. Refusals are results too: a retry must not succeed behind the back of a client that was told no.

Per client there is a *floor*: at or below it every sequence counts as used, and a retry gets ResultEvicted. It rises
when the client moves on (`client_results_max` sequences behind its newest one, or by bytes), and EvictResults raises
it to the newest sequence of a client that was idle for long. The floor of a client is never forgotten: 34 bytes are
the price of never executing anything twice.
"""

from __future__ import annotations

from itertools import takewhile
from struct import Struct
from typing import Any

import msgpack

from metastore.check import check
from metastore.errors import ResultEvicted
from metastore.limits import Limits
from metastore.ordered_map import OrderedMap, Table
from metastore.record import key_hash
from metastore.requests import RequestId
from metastore.state import State

ACTIVE = b"a"
FORGOTTEN = b"f"
RESULT = b"r"
SEQUENCE = Struct(">Q")
CLIENT = Struct(">QQQQ")
SEQUENCE_MAX = (1 << 63) - 1
RESULT_COST_BYTES = 64


class Client:
    """What is known of one client: `floor` < used sequences with a result <= `highest`."""

    __slots__ = ("bytes", "clock_ms", "floor", "highest", "name")

    def __init__(self, name: bytes, highest: int, floor: int, size: int, clock_ms: int) -> None:
        self.name = name
        self.highest = highest
        self.floor = floor
        self.bytes = size
        self.clock_ms = clock_ms

    def packed(self) -> bytes:
        return CLIENT.pack(self.highest, self.floor, self.bytes, self.clock_ms)


class ResultBook:
    """Results by (client, sequence). Clients that have results are in memory, by the hash of their id, the one that
    was idle for longest first."""

    __slots__ = ("_by_id", "_clients", "_dirty", "_limits", "_pack", "_state", "_tables")

    def __init__(self, tables: OrderedMap, state: State, limits: Limits) -> None:
        self._tables = tables
        self._state = state
        self._limits = limits
        self._pack = msgpack.Packer().pack
        self._clients: dict[bytes, Client] = {}
        self._by_id: dict[str, Client] = {}
        self._dirty: set[bytes] = set()
        self.load()

    def load(self) -> None:
        self._by_id.clear()
        self._dirty.clear()
        stored = self._tables.scan(Table.CLIENT, ACTIVE, next_letter(ACTIVE))
        clients = [Client(key[1:], *CLIENT.unpack(value)) for key, value in stored]
        self._clients = {client.name: client for client in sorted(clients, key=lambda client: client.clock_ms)}

    def __len__(self) -> int:
        """How many clients have results."""
        return len(self._clients)

    def find(self, request: RequestId) -> Any:
        """The first result in its wire form; None if this is the first time. Raises ResultEvicted."""
        client = self._by_id.get(request.client)
        if client is None:
            client = self._client(request.client)
        sequence = request.sequence
        if sequence <= client.floor:
            raise ResultEvicted(
                f"request {sequence} of client {request.client!r} is too old to tell whether it was executed:"
                f" results are kept from {client.floor + 1} on; read the keys, then use a new sequence"
            )
        if sequence > client.highest:
            return None
        stored = self._tables.get(Table.CLIENT, RESULT + client.name + SEQUENCE.pack(sequence))
        return None if stored is None else msgpack.unpackb(stored, use_list=False)

    def _client(self, name: str) -> Client:
        hashed = key_hash(name.encode())
        client = self._clients.get(hashed)
        if client is not None:
            self._by_id[name] = client
            return client
        forgotten = self._tables.get(Table.CLIENT, FORGOTTEN + hashed)
        floor = SEQUENCE.unpack(forgotten)[0] if forgotten is not None else 0
        return Client(hashed, floor, floor, 0, self._state.clock_ms)

    def remember(self, request: RequestId, result: Any) -> None:
        """After `find` gave None for it. The result is what every retry gets."""
        client = self._by_id.get(request.client) or self._enter(request.client)
        sequence = request.sequence
        check(sequence > client.floor, f"a result below the floor of client {request.client!r}")
        packed = self._pack(result)
        self._tables.put(Table.CLIENT, RESULT + client.name + SEQUENCE.pack(sequence), packed)
        client.bytes += len(packed)
        client.clock_ms = self._state.clock_ms
        self._state.size += len(packed) + RESULT_COST_BYTES
        self._dirty.add(client.name)
        if sequence > client.highest:
            highest, client.highest = client.highest, sequence
            floor = sequence - self._limits.client_results_max
            if floor > client.floor:
                self._drop(client, min(floor, highest))
                client.floor = floor
        while client.bytes > self._limits.client_results_bytes_max and client.floor + 1 < sequence:
            self._drop(client, client.floor + 1)

    def _enter(self, name: str) -> Client:
        client = self._client(name)
        if client.name not in self._clients:
            self._tables.delete(Table.CLIENT, FORGOTTEN + client.name)
            self._clients[client.name] = client
            self._by_id[name] = client
        return client

    def _drop(self, client: Client, floor: int) -> int:
        """Forget the results up to and with `floor`, and raise the floor to it. How many there were."""
        dropped = 0
        for sequence in range(client.floor + 1, floor + 1):
            key = RESULT + client.name + SEQUENCE.pack(sequence)
            stored = self._tables.get(Table.CLIENT, key)
            if stored is not None:
                self._tables.delete(Table.CLIENT, key)
                client.bytes -= len(stored)
                self._state.size -= len(stored) + RESULT_COST_BYTES
                dropped += 1
        client.floor = max(client.floor, floor)
        return dropped

    def idle_before(self, clock_ms: int) -> bool:
        """Whether EvictResults(clock_ms) would find something to forget."""
        longest = next(iter(self._clients.values()), None)
        return longest is not None and longest.clock_ms < clock_ms

    def evict(self, clock_ms: int) -> int:
        """Forget the clients idle since before `clock_ms`, the longest idle first; how many results went.

        Stops after the client with which `evicted_results_max` sequences are reached: the leader proposes it again.
        """
        by_idleness = takewhile(lambda client: client.clock_ms < clock_ms, self._clients.values())
        idle = sorted((client.clock_ms, client.name) for client in by_idleness)
        evicted = looked_at = 0
        for _, name in idle:
            if looked_at >= self._limits.evicted_results_max:
                break
            client = self._clients.pop(name)
            looked_at += client.highest - client.floor
            evicted += self._forget(client)
        if idle:
            self._by_id.clear()
        return evicted

    def _forget(self, client: Client) -> int:
        dropped = self._drop(client, client.highest)
        self._dirty.discard(client.name)
        self._tables.delete(Table.CLIENT, ACTIVE + client.name)
        self._tables.put(Table.CLIENT, FORGOTTEN + client.name, SEQUENCE.pack(client.highest))
        return dropped

    def save(self) -> None:
        """At the end of a batch."""
        for name in self._dirty:
            client = self._clients[name] = self._clients.pop(name)
            self._tables.put(Table.CLIENT, ACTIVE + name, client.packed())
        self._dirty.clear()


def next_letter(letter: bytes) -> bytes:
    return bytes([letter[0] + 1])
