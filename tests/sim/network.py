"""The network between simulated nodes: one state of each direction, for all kinds of traffic.

Three kinds share it: connections of the Raft group (`tests/support/raft_network.py`), streams of bytes and datagrams
(`sockets.py`), calls and returns (`ask`). `blocked` directions drop everything; `slow` ones add to the delay; `weather`
applies to all. Streams deliver in order, so loss delays them, as it does TCP; two connections of the same pair do not
wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tests.support.raft_network import Network as RaftNetwork
from tests.support.raft_network import Weather
from tests.support.simulation import Process, Simulation

if TYPE_CHECKING:
    from tests.sim.sockets import Listener

T = TypeVar("T")
RETRANSMIT_S = 0.2
BROKEN_S = (0.5, 4.0)
"""When a connection without any passing message is closed."""
WINDOW_BYTES = 256 * 1024
"""The buffers of the systems at both ends of a stream together."""
UNSENT_BYTES_HIGH = 64 * 1024
"""As asyncio has it."""


class Network(RaftNetwork):
    """`hosts`: name by address."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.hosts: dict[str, str] = {}
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.sockets: dict[tuple[str, int], Any] = {}
        """Of datagrams."""
        self.window_bytes = WINDOW_BYTES
        self.lost = 0
        self.sent = 0

    def lot(self) -> float:
        return self.simulation.random.random()

    @property
    def unsent_bytes_high(self) -> int:
        """How much the writer of a stream may buffer, beyond its window, before it is paused."""
        return min(UNSENT_BYTES_HIGH, self.window_bytes)

    def way(self, sender: str, receiver: str) -> float:
        self.sent += 1
        return super().way(sender, receiver)

    def loses(self) -> bool:
        return self.weather.lose > 0 and self.lot() < self.weather.lose

    def stream_way(self, sender: str, receiver: str) -> float:
        """With retransmissions of lost parts."""
        way = self.way(sender, receiver)
        while self.loses():
            self.lost += 1
            way += RETRANSMIT_S
        return way

    async def ask(
        self, own: Process, sender: str, receiver: str, there: Process | None, work: Callable[[], Awaitable[T]]
    ) -> T:
        """Run `work` in another process, and return its result or raise its error. Raises ConnectionError."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        question = _Question(self, own, sender, receiver, answer)
        if not self.passes(sender, receiver):
            question.give_up()
        else:
            self.simulation.after(self.stream_way(sender, receiver), lambda: question.begin(there, work))
            if there is not None:
                there.on_death[answer] = question.give_up
        try:
            result, error = await answer
        finally:
            if there is not None:
                there.on_death.pop(answer, None)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def patience(self) -> float:
        shortest, longest = BROKEN_S
        return shortest + (longest - shortest) * self.lot()


class _Question:
    """One call, on its way there and back."""

    def __init__(self, network: Network, own: Process, sender: str, receiver: str, answer: asyncio.Future[Any]) -> None:
        self._network, self._own, self._sender, self._receiver = network, own, sender, receiver
        self._answer = answer

    def begin(self, there: Process | None, work: Callable[[], Awaitable[Any]]) -> None:
        if there is None or there.dead:
            self._back((None, ConnectionRefusedError(f"{self._receiver} does not listen")))
        else:
            there.call(lambda: there.start(self._run(work)))

    async def _run(self, work: Callable[[], Awaitable[Any]]) -> None:
        try:
            outcome: Any = (await work(), None)
        except Exception as error:
            outcome = (None, error)
        self._back(outcome)

    def _back(self, outcome: Any) -> None:
        network = self._network
        if not network.passes(self._receiver, self._sender):
            self.give_up()
            return
        way = network.stream_way(self._receiver, self._sender)
        network.simulation.after(way, lambda: self._own.call(self._arrived, outcome))

    def _arrived(self, outcome: Any) -> None:
        if not self._answer.done():
            self._answer.set_result(outcome)

    def give_up(self) -> None:
        """There will be no response."""
        outcome = (None, ConnectionResetError("the connection broke"))
        network = self._network
        network.simulation.after(network.patience(), lambda: self._own.call(self._arrived, outcome))


__all__ = ["Network", "Weather"]
