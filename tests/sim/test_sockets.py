"""A stream holds what its window has room for: a writer beyond it is paused, and continues when its data have been
read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.sim.network import Network
from tests.sim.sockets import SimLoop, Transport
from tests.support.simulation import Process, Simulation


class Recorder(asyncio.Protocol):
    def __init__(self) -> None:
        self.transport: Any = None
        self.heard: list[str] = []
        self.data = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def pause_writing(self) -> None:
        self.heard.append("pause")

    def resume_writing(self) -> None:
        self.heard.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.heard.append("lost")


class Ground:
    """A stream between two processes, with a window of 100 bytes."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self.network = Network(self.simulation)
        self.network.window_bytes = 100
        self.here, self.there = self._process("a", 1), self._process("b", 2)
        self.writer, self.reader = Recorder(), Recorder()
        self.simulation.run(self.there, self._listen())
        self.simulation.run(self.here, self._connect())
        self.simulation.run_for(0.1)

    def _process(self, name: str, number: int) -> Process:
        process = self.simulation.process(name, loop=SimLoop)
        loop: Any = process.loop
        loop.network, loop.process, loop.name = self.network, process, name
        self.network.hosts[f"127.0.0.{number}"] = name
        return process

    async def _listen(self) -> None:
        loop: Any = asyncio.get_running_loop()
        await loop.create_server(lambda: self.reader, "127.0.0.2", 1)

    async def _connect(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self.writer, "127.0.0.2", 1)

    @property
    def transport(self) -> Transport:
        found: Transport = self.writer.transport
        return found

    def act(self, work: Callable[[], None]) -> None:
        self.here.call(work)
        self.simulation.run_for(1.0)


def test_writer_is_paused_until_its_peer_reads() -> None:
    ground = Ground()
    ground.there.pause()
    ground.act(lambda: ground.transport.write(b"x" * 150))
    assert (ground.writer.heard, ground.transport.get_write_buffer_size()) == ([], 50)
    ground.act(lambda: ground.transport.write(b"y" * 150))
    assert (ground.writer.heard, ground.transport.get_write_buffer_size()) == (["pause"], 200)
    ground.there.resume()
    ground.simulation.run_for(1.0)
    assert ground.writer.heard == ["pause", "resume"]
    assert ground.reader.data == b"x" * 150 + b"y" * 150
    assert ground.transport.get_write_buffer_size() == 0


def test_closed_connection_flushes_unless_aborted() -> None:
    ground = Ground()
    ground.there.pause()
    ground.act(lambda: ground.transport.write(b"x" * 150))
    ground.act(ground.transport.close)
    ground.act(lambda: ground.transport.write(b"y"))
    assert (ground.writer.heard, ground.transport.get_write_buffer_size()) == ([], 51)
    ground.act(ground.transport.abort)
    assert (ground.writer.heard, ground.transport.get_write_buffer_size()) == (["lost"], 0)


def test_buffered_bytes_arrive_before_the_end() -> None:
    ground = Ground()
    ground.reader.transport.pause_reading()
    ground.act(lambda: ground.transport.write(b"x" * 250))
    ground.act(ground.transport.close)
    assert (ground.writer.heard, ground.reader.data) == (["pause"], b"")
    ground.there.call(ground.reader.transport.resume_reading)
    ground.simulation.run_for(1.0)
    assert (ground.reader.heard, ground.reader.data) == (["lost"], b"x" * 250)
