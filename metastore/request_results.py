"""A write with a request id is executed once, however often it is sent (M3).

The first result of each (client, sequence) is replicated state, so a retry finds it after a change of leader, a restart
or a snapshot. Refusals are results too: a retry must not succeed after the client received a refusal.

Each client has a *floor*: sequences at or below it count as used, and a retry gets ResultEvicted. The floor rises as
the client continues (`client_results_max` sequences below its newest one, or by bytes). EvictResults raises it to the
newest sequence of a client that was idle for long. The floor of a client is never removed: these 25 bytes guarantee
that nothing is executed twice.

CLIENT holds four kinds of entries, distinguished by their first letter and the hash of the client's id: the state of an
active client, the floor of an evicted one, results, and *pages*. A page has the revisions of 128 consecutive sequences
that were plain puts, the most frequent write: one entry per 128 writes instead of one per write.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import takewhile
from struct import Struct
from typing import Any

import msgpack

from palisade.metastore.command_codec import PUT_RESULT
from palisade.metastore.errors import ResultEvicted
from palisade.metastore.limits import Limits
from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.record import key_hash
from palisade.metastore.requests import RequestId
from palisade.metastore.state import StoreState

ACTIVE = b"a"
FORGOTTEN = b"f"
PAGE = b"p"
RESULT = b"r"
NUMBER = Struct(">Q")
CLIENT = Struct(">QQQQ")
SEQUENCE_MAX = (1 << 63) - 1
PAGE_SLOTS = 128
PAGE_BYTES = PAGE_SLOTS * NUMBER.size
SLOTS = [Struct(f">{count}Q") for count in range(PAGE_SLOTS + 1)]
ENTRY_COST_BYTES = 64


class ClientResults:
    """The state of one client: `floor` < used sequences <= `highest`, and the pages that this batch changed."""

    __slots__ = ("bytes", "clock_ms", "floor", "highest", "name", "pages")

    def __init__(self, name: bytes, highest: int, floor: int, size: int, clock_ms: int) -> None:
        """`name`: the hash of the client's id."""
        self.name = name
        self.highest = highest
        self.floor = floor
        self.bytes = size
        self.clock_ms = clock_ms
        self.pages: dict[int, bytearray] = {}

    def packed(self) -> bytes:
        return CLIENT.pack(self.highest, self.floor, self.bytes, self.clock_ms)


class RequestResults:
    """Results by (client, sequence). Clients with results are in memory, the longest idle one first."""

    __slots__ = ("_clients", "_dirty", "_growth", "_known", "_limits", "_pack", "_state", "_tables", "changed")

    def __init__(self, tables: OrderedMap, state: StoreState, limits: Limits) -> None:
        self._tables = tables
        self._state = state
        self._limits = limits
        self._pack = msgpack.Packer().pack
        self._clients: dict[bytes, ClientResults] = {}
        self._dirty: dict[bytes, ClientResults] = {}
        self._growth = 0
        self.changed = False
        """`save` has work to do."""
        self._known: dict[str, ClientResults] = {}  # active ones by id, loaded on first use
        self.load()

    def load(self) -> None:
        self._known.clear()
        self._dirty.clear()
        self._growth = 0
        self.changed = False
        stored = self._tables.scan(Table.CLIENT, ACTIVE, next_letter(ACTIVE))
        clients = [ClientResults(key[1:], *CLIENT.unpack(value)) for key, value in stored]
        self._clients = {client.name: client for client in sorted(clients, key=lambda client: client.clock_ms)}

    def __len__(self) -> int:
        """The number of clients with results."""
        return len(self._clients)

    # Looking up

    def find(self, request: RequestId) -> Any:
        """The first result in wire form; None if this is the first time. Raises ResultEvicted."""
        client = self._client(request.client)
        sequence = request.sequence
        if sequence <= client.floor:
            raise ResultEvicted(
                f"request {sequence} of client {request.client!r} is too old: results are kept from {client.floor + 1} "
                "on, so it may have been executed; read the keys, then use a new sequence"
            )
        if sequence > client.highest:
            return None
        page = self._page(client, page_of(sequence))
        revision = NUMBER.unpack_from(page, slot_of(sequence))[0] if page is not None else 0
        if revision:
            return (PUT_RESULT, revision)
        stored = self._tables.get(Table.CLIENT, RESULT + client.name + NUMBER.pack(sequence))
        return None if stored is None else msgpack.unpackb(stored, use_list=False)

    def active(self, name: str) -> ClientResults | None:
        """A client with results: a sequence above its `highest` is no retry. None for a new or evicted one."""
        client = self._known.get(name)
        if client is None:
            client = self._clients.get(key_hash(name.encode("utf-8", "surrogatepass")))
            if client is not None:
                self._known[name] = client
        return client

    def _client(self, name: str) -> ClientResults:
        """A new client is registered with its first result."""
        client = self._known.get(name)
        if client is not None:
            return client
        hashed = key_hash(name.encode())
        client = self._clients.get(hashed)
        if client is not None:
            self._known[name] = client
            return client
        forgotten = self._tables.get(Table.CLIENT, FORGOTTEN + hashed)
        floor = NUMBER.unpack(forgotten)[0] if forgotten is not None else 0
        return ClientResults(hashed, floor, floor, 0, self._state.clock_ms)

    def _page(self, client: ClientResults, number: int) -> bytes | bytearray | None:
        page = client.pages.get(number)
        return page if page is not None else self._tables.get(Table.CLIENT, page_key(client, number))

    # Remembering

    def remember(self, request: RequestId, result: Any) -> None:
        """Call after `find` returned None for the request. Every retry gets this result.

        Exception: the result of an EvictResults that evicts its own client is not stored; its sequence counts as used.
        """
        client = self._client(request.client)
        if request.sequence <= client.floor:
            return
        if client.name not in self._clients:
            self._tables.delete(Table.CLIENT, FORGOTTEN + client.name)
            self._clients[client.name] = client
            self._known[request.client] = client
        if result[0] == PUT_RESULT and len(result) == 2:
            self.remember_put(client, request.sequence, result[1])
            return
        packed = self._pack(result)
        self._tables.put(Table.CLIENT, RESULT + client.name + NUMBER.pack(request.sequence), packed)
        self._grow(client, len(packed) + ENTRY_COST_BYTES)
        self._used(client, request.sequence)

    def remember_put(self, client: ClientResults, sequence: int, revision: int) -> None:
        """The result of a put without a previous value is its revision."""
        number, slot = divmod(sequence - 1, PAGE_SLOTS)
        page = client.pages.get(number)
        if page is None:
            page = self._open_page(client, number)
        NUMBER.pack_into(page, slot * NUMBER.size, revision)
        self._used(client, sequence)

    def remember_puts(self, client: ClientResults, sequences: Sequence[int], revisions: Sequence[int]) -> None:
        """As `remember_put` for each of them. `sequences` increase, and all are above the client's highest one."""
        first = 0
        while first < len(sequences):
            number = page_of(sequences[first])
            page = client.pages.get(number) or self._open_page(client, number)
            stop = bisect_right(sequences, (number + 1) * PAGE_SLOTS, first)
            if sequences[stop - 1] - sequences[first] == stop - first - 1:
                SLOTS[stop - first].pack_into(page, slot_of(sequences[first]), *revisions[first:stop])
            else:
                for place in range(first, stop):
                    NUMBER.pack_into(page, slot_of(sequences[place]), revisions[place])
            self._used(client, sequences[stop - 1])
            first = stop

    def _open_page(self, client: ClientResults, number: int) -> bytearray:
        stored = None
        if number <= page_of(client.highest):
            stored = self._tables.get(Table.CLIENT, page_key(client, number))
        if stored is None:
            self._grow(client, PAGE_BYTES + ENTRY_COST_BYTES)
        page = client.pages[number] = bytearray(stored or PAGE_BYTES)
        return page

    def _grow(self, client: ClientResults, size: int) -> None:
        client.bytes += size
        self._growth += size
        self.changed = True

    def _used(self, client: ClientResults, sequence: int) -> None:
        if client.clock_ms != self._state.clock_ms:
            client.clock_ms = self._state.clock_ms
            self._clients[client.name] = self._clients.pop(client.name)
        self._dirty[client.name] = client
        self.changed = True
        if sequence > client.highest:
            floor = (sequence - self._limits.client_results_max) // PAGE_SLOTS * PAGE_SLOTS
            if floor > client.floor:
                self._raise_floor(client, floor)
            client.highest = sequence
        if client.bytes > self._limits.client_results_bytes_max:
            self._shrink(client, page_of(sequence) * PAGE_SLOTS)

    def _shrink(self, client: ClientResults, floor_max: int) -> None:
        """Page by page, but never the page of the newest result."""
        while client.bytes > self._limits.client_results_bytes_max:
            floor = (client.floor // PAGE_SLOTS + 1) * PAGE_SLOTS
            if floor > floor_max:
                return
            self._raise_floor(client, floor)

    # Forgetting

    def _raise_floor(self, client: ClientResults, floor: int) -> None:
        """Remove the results up to and including `floor`."""
        for number in range(page_of(client.floor + 1), page_of(min(floor, client.highest)) + 1):
            dirty = client.pages.pop(number, None) is not None
            if dirty or self._tables.get(Table.CLIENT, page_key(client, number)) is not None:
                self._tables.delete(Table.CLIENT, page_key(client, number))
                self._grow(client, -PAGE_BYTES - ENTRY_COST_BYTES)
        start = RESULT + client.name
        first, end = start + NUMBER.pack(client.floor + 1), start + NUMBER.pack(floor + 1)
        for key, stored in list(self._tables.scan(Table.CLIENT, first, end)):
            self._tables.delete(Table.CLIENT, key)
            self._grow(client, -len(stored) - ENTRY_COST_BYTES)
        client.floor = floor

    def idle_before(self, clock_ms: int) -> bool:
        """Whether EvictResults(clock_ms) would remove anything."""
        longest = next(iter(self._clients.values()), None)
        return longest is not None and longest.clock_ms < clock_ms

    def evict(self, clock_ms: int) -> int:
        """Evict the clients idle since before `clock_ms`, the longest idle first; returns their number.

        Stops after the client that reaches `evicted_results_max` sequences: the leader proposes it again.
        """
        by_idleness = takewhile(lambda client: client.clock_ms < clock_ms, self._clients.values())
        idle = sorted((client.clock_ms, client.name) for client in by_idleness)
        evicted = looked_at = 0
        for _, name in idle:
            if looked_at >= self._limits.evicted_results_max:
                break
            client = self._clients.pop(name)
            looked_at += client.highest - client.floor
            self._forget(client)
            evicted += 1
        self._known.clear()
        return evicted

    def _forget(self, client: ClientResults) -> None:
        self._raise_floor(client, client.highest)
        self._dirty.pop(client.name, None)
        self._tables.delete(Table.CLIENT, ACTIVE + client.name)
        self._tables.put(Table.CLIENT, FORGOTTEN + client.name, NUMBER.pack(client.highest))

    def save(self) -> None:
        """At the end of a batch. Counts the growth only now, so the result does not depend on how a batch is split."""
        self._state.size += self._growth
        self._growth = 0
        for name, client in self._dirty.items():
            self._tables.put(Table.CLIENT, ACTIVE + name, client.packed())
            for number, page in client.pages.items():
                self._tables.put(Table.CLIENT, page_key(client, number), bytes(page))
            client.pages.clear()
        self._dirty.clear()
        self.changed = False


def next_letter(letter: bytes) -> bytes:
    return bytes([letter[0] + 1])


def page_of(sequence: int) -> int:
    return (sequence - 1) // PAGE_SLOTS


def slot_of(sequence: int) -> int:
    return (sequence - 1) % PAGE_SLOTS * NUMBER.size


def page_key(client: ClientResults, number: int) -> bytes:
    return PAGE + client.name + NUMBER.pack(number)
