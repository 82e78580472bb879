"""Sockets of simulated processes: streams of bytes and datagrams, under asyncio's own transports and protocols.

All code that uses `create_connection`, `create_server` and `create_datagram_endpoint` runs unmodified: the stream port,
the connections of lease holders, SWIM. A stream is two ends; each keeps the order of what it sends. When a direction is
blocked the data wait, and after a while both ends close the connection, each in its own time.

A stream accepts what its window has room for, and has room again when the other side has read. The rest is buffered by
the writer, and beyond a bound its protocol is paused (`asyncio.Transport`, as `set_write_buffer_limits` has it).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.sim.network import RETRANSMIT_S, Network
from tests.support.simulation import Process
from tests.support.virtual_loop import VirtualLoop


class Listener:
    """The result of `create_server`."""

    def __init__(self, loop: SimLoop, address: tuple[str, int], factory: Callable[[], asyncio.Protocol]) -> None:
        self.loop, self.address, self.factory = loop, address, factory
        self.sockets: tuple[Any, ...] = ()

    def close(self) -> None:
        listeners = self.loop.network.listeners
        if listeners.get(self.address) is self:
            del listeners[self.address]
        self.loop.process.on_death.pop(self, None)

    async def wait_closed(self) -> None:
        return


class SimLoop(VirtualLoop):
    """The event loop of a process on the host `name`, whose address is `host`. `process` is set when it is created."""

    network: Network
    process: Process
    name: str

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        listener = Listener(self, (host, port), protocol_factory)
        if (host, port) in self.network.listeners:
            raise OSError(98, "address in use")
        self.network.listeners[host, port] = listener
        self.process.on_death[listener] = listener.close
        return listener

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        """Raises ConnectionRefusedError; never returns if nothing passes."""
        network, there = self.network, self.network.hosts[host]
        if not (network.passes(self.name, there) and network.passes(there, self.name)):
            await self.create_future()
        await asyncio.sleep(network.stream_way(self.name, there))
        listener = network.listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(f"connection refused by {host}:{port}")
        mine, other = Transport(self, there), Transport(listener.loop, self.name)
        mine.peer, other.peer = other, mine
        protocol = protocol_factory()
        mine.protocol = protocol
        listener.loop.process.call(other.begin, listener.factory)
        protocol.connection_made(mine)
        return mine, protocol

    async def create_datagram_endpoint(self, protocol_factory: Any, local_addr: Any = None, **_: Any) -> Any:
        protocol = protocol_factory()
        transport = DatagramTransport(self, local_addr, protocol)
        self.network.sockets[local_addr] = transport
        protocol.connection_made(transport)
        return transport, protocol


class Transport(asyncio.Transport):
    """One end of a stream."""

    peer: Transport

    def __init__(self, loop: SimLoop, there: str) -> None:
        super().__init__()
        self.loop, self.there = loop, there
        self.protocol: Any = None
        self.closed = self.lost = False
        self._outgoing: deque[tuple[float, bytes | None]] = deque()
        self._pumping = False
        self._last = 0.0
        self._stuck = 0.0
        self._paused: list[bytes] | None = None
        self._under_way = 0
        """Bytes that the network has accepted, and the other side has not read."""
        self._unsent = bytearray()
        self._looking_for_room = False
        self.pauses_writer = False
        self.pauses = 0
        loop.process.on_death[self] = self._died

    def begin(self, factory: Callable[[], Any]) -> None:
        self.protocol = factory()
        self.protocol.connection_made(self)

    # asyncio's side

    def write(self, data: Any) -> None:
        """Also when it is closed, while earlier data have not left: as asyncio does."""
        if self.lost or not data or (self.closed and not self._unsent):
            return
        if self._unsent:
            self._unsent += data
        else:
            room = self._room
            self._send(bytes(data[:room]))
            self._unsent += data[room:]
        if not self.pauses_writer and len(self._unsent) > self.loop.network.unsent_bytes_high:
            self.pauses_writer = True
            self.pauses += 1
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Earlier data arrive before the other end is notified."""
        if not self.closed and not self.lost:
            self.closed = True
            if not self._unsent:
                self._say_goodbye()

    def abort(self) -> None:
        """Data that have not left are dropped."""
        if self._unsent:
            self._unsent.clear()
            if self.closed and not self.lost:
                self._say_goodbye()
        self.close()

    def is_closing(self) -> bool:
        return self.closed or self.lost

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def pause_reading(self) -> None:
        if self._paused is None:
            self._paused = []

    def resume_reading(self) -> None:
        held, self._paused = self._paused, None
        for data in held or ():
            self.loop.process.call(self._take, data)

    # The network's side

    @property
    def _room(self) -> int:
        return max(0, self.loop.network.window_bytes - self._under_way)

    def _has_been_read(self, read_bytes: int) -> None:
        """By the other side."""
        self._under_way -= read_bytes
        if self._unsent and not self._looking_for_room:
            self._looking_for_room = True
            self._hear_of_room()

    def _hear_of_room(self) -> None:
        """An acknowledgement arrives; it is repeated while nothing passes."""
        network = self.loop.network
        if network.passes(self.there, self.loop.name):
            way = network.stream_way(self.there, self.loop.name)
            network.simulation.after(way, lambda: self.loop.process.call(self._go_on))
        elif not self.lost:
            network.simulation.after(RETRANSMIT_S, self._hear_of_room)

    def _go_on(self) -> None:
        """There is room for more of the buffered data."""
        self._looking_for_room = False
        if self.lost or not self._unsent:
            return
        room = self._room
        if room:
            self._send(bytes(self._unsent[:room]))
            del self._unsent[:room]
        if self.pauses_writer and len(self._unsent) <= self.loop.network.unsent_bytes_high // 4:
            self.pauses_writer = False
            self.protocol.resume_writing()
        if self.closed and not self._unsent:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        self._send(None)
        self.loop.process.call(self._end, None)

    def _send(self, data: bytes | None) -> None:
        if data is not None:
            if not data:
                return
            self._under_way += len(data)
        network = self.loop.network
        now = network.simulation.now
        self._last = max(self._last, now + network.stream_way(self.loop.name, self.there))
        self._outgoing.append((self._last, data))
        self._pump_at(self._last)

    def _pump_at(self, when: float) -> None:
        if not self._pumping:
            self._pumping = True
            simulation = self.loop.network.simulation
            simulation.after(max(0.0, when - simulation.now), self._pump)

    def _pump(self) -> None:
        """Everything that is due arrives at once."""
        self._pumping = False
        network, now = self.loop.network, self.loop.network.simulation.now
        if not self._outgoing:
            return
        if not network.passes(self.loop.name, self.there):
            self._wait(now)
            return
        self._stuck = 0.0
        arrived: list[bytes] = []
        ended = False
        while self._outgoing and self._outgoing[0][0] <= now:
            data = self._outgoing.popleft()[1]
            if data is None:
                ended = True
            else:
                arrived.append(data)
        peer = self.peer
        if arrived:
            peer.loop.process.call(peer._take, b"".join(arrived))
        if ended:
            peer.loop.process.call(peer._end, None)
        if self._outgoing:
            self._pump_at(self._outgoing[0][0])

    def _wait(self, now: float) -> None:
        """Nothing passes: retry, until the connection is closed."""
        network = self.loop.network
        if not self._stuck:
            self._stuck = now + network.patience()
        if now >= self._stuck:
            for end in (self, self.peer):
                delay = network.lot()
                network.simulation.after(delay, lambda end=end: end.loop.process.call(end._end, ConnectionResetError()))
            return
        self._pump_at(now + RETRANSMIT_S)

    def _take(self, data: bytes) -> None:
        if self._paused is not None:
            self._paused.append(data)
            return
        self.peer._has_been_read(len(data))
        if self.protocol is not None and not self.closed and not self.lost:
            self.protocol.data_received(data)

    def _end(self, error: Exception | None) -> None:
        if self.lost:
            return
        was_closed, self.lost = self.closed, True
        self._unsent.clear()
        if not was_closed:
            self._outgoing.clear()
        self.loop.process.on_death.pop(self, None)
        if self.protocol is not None:
            self.protocol.connection_lost(None if was_closed else error)
        if not was_closed and self.peer.lost is False:
            self.peer.loop.process.call(self.peer._end, error)

    def _died(self) -> None:
        """The process is gone: its system notifies the other end, or, without power, it only falls silent."""
        if self.lost:
            return
        self.lost = True
        self._outgoing.clear()
        network, peer = self.loop.network, self.peer
        within_s = network.delay() if self.loop.process.reset_peers else network.patience()
        network.simulation.after(within_s, lambda: peer.loop.process.call(peer._end, ConnectionResetError()))


class DatagramTransport(asyncio.DatagramTransport):
    def __init__(self, loop: SimLoop, address: tuple[str, int], protocol: Any) -> None:
        super().__init__()
        self.loop, self.address, self.protocol = loop, address, protocol

    def sendto(self, data: Any, addr: Any = None) -> None:
        network = self.loop.network
        there = network.hosts.get(addr[0])
        if there is None or not network.passes(self.loop.name, there):
            return
        copies = 1 + (network.weather.repeat > 0 and network.lot() < network.weather.repeat)
        for _ in range(copies):
            if not network.loses():
                late = 0.3 * network.lot() ** 2 if network.lot() < network.weather.reorder else 0.0
                way = network.way(self.loop.name, there) + late
                network.simulation.after(way, lambda: self._arrive(addr, bytes(data)))

    def _arrive(self, addr: tuple[str, int], data: bytes) -> None:
        other = self.loop.network.sockets.get(addr)
        if other is not None and not other.loop.process.dead:
            other.loop.process.call(other.protocol.datagram_received, data, self.address)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.address if name == "sockname" else default

    def close(self) -> None:
        if self.loop.network.sockets.get(self.address) is self:
            del self.loop.network.sockets[self.address]

    def is_closing(self) -> bool:
        return False
