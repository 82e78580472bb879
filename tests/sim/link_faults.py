"""Faults of the network: between two nodes, between a node and its clients, around a node, everywhere.

A blocked link counts as a fault when it drops something.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from tests.sim.faults import CLIENTS, Fault
from tests.support.raft_network import Network, Weather

DEAF_FROM = 0.6
"""An isolation of more than that cuts a node off from clients as well."""


class Linked(Protocol):
    """Whose links are broken: a node of the simulator, or a member of a bare group."""

    @property
    def id(self) -> str: ...


class Breaker(Protocol):
    """Its nemesis."""

    def later(self, after_s: float, undo: Callable[[], None]) -> None: ...
    def struck(self, fault: Fault) -> None: ...


class Links:
    """`names`: of all nodes; `callers`: of all clients. `count` is called with what a blocked link drops."""

    def __init__(
        self,
        nemesis: Breaker,
        network: Network,
        names: Collection[str],
        callers: Collection[str] = (),
        count: Callable[[str], None] = lambda _what: None,
    ) -> None:
        self._nemesis, self._network, self._count = nemesis, network, count
        self._names, self._callers = names, callers

    def block(self, pairs: list[tuple[str, str]], for_s: float, struck: Callable[[], None] = lambda: None) -> None:
        """`struck` is called when the first message is dropped."""
        network, waiting = self._network, [struck]

        def swallowed() -> None:
            if waiting:
                waiting.pop()()

        network.blocked.update(pairs)
        for pair in pairs:
            network.swallowing.setdefault(pair, []).append(swallowed)

        def over() -> None:
            network.blocked.difference_update(pairs)
            waiting.clear()

        self._nemesis.later(for_s, over)

    def _block(self, fault: Fault, pairs: list[tuple[str, str]], for_s: float | None = None) -> None:
        self.block(pairs, fault.for_s if for_s is None else for_s, lambda: self._nemesis.struck(fault))

    def isolate(self, fault: Fault, host: Linked) -> None:
        others = [other for other in self._names if other != host.id]
        if fault.amount > DEAF_FROM:
            others += self._callers
        self._block(fault, [pair for other in others for pair in ((host.id, other), (other, host.id))])

    def _others(self, fault: Fault) -> list[str]:
        return list(self._callers) if fault.other == CLIENTS else [fault.other]

    def one_way(self, fault: Fault, host: Linked) -> None:
        pairs = [(host.id, other) for other in self._others(fault)]
        what = "anything of nodes"
        if fault.other == CLIENTS:
            what = "answers" if fault.amount < 0.5 else "questions"
        if what == "questions":
            pairs = [(other, own) for own, other in pairs]

        def struck() -> None:
            self._nemesis.struck(fault)
            self._count(f"lost one way: {what}")

        self.block(pairs, fault.for_s, struck)

    def _both_ways(self, fault: Fault, host: Linked) -> list[tuple[str, str]]:
        return [pair for other in self._others(fault) for pair in ((host.id, other), (other, host.id))]

    def cut(self, fault: Fault, host: Linked) -> None:
        self._block(fault, self._both_ways(fault, host))

    def flap(self, fault: Fault, host: Linked) -> None:
        times = 2 + int(fault.amount * 8)
        for number in range(times):
            self._nemesis.later(
                number * fault.for_s / times,
                lambda: self._block(fault, self._both_ways(fault, host), fault.for_s / times * 0.6),
            )

    def split(self, fault: Fault, host: Linked) -> None:
        ours = {host.id, fault.other}
        rest = [other for other in self._names if other not in ours]
        pairs = [(one, other) for one in (host.id, fault.other) for other in rest]
        self._block(fault, [*pairs, *((other, one) for one, other in pairs)])

    def storm(self, fault: Fault, host: Linked) -> None:
        network, amount = self._network, fault.amount
        network.weather = Weather((0.0005, 0.001 + 0.15 * amount**2), 0.2 * amount**2, 0.2 * amount, 0.3 * amount)
        self._nemesis.struck(fault)

        def calm() -> None:
            network.weather = Weather()

        self._nemesis.later(fault.for_s, calm)

    def slow_link(self, fault: Fault, host: Linked) -> None:
        network, pairs = self._network, [(host.id, other) for other in self._others(fault)]
        network.slow.update(dict.fromkeys(pairs, 2.0 * fault.amount**2))
        self._nemesis.struck(fault)

        def fast() -> None:
            for pair in pairs:
                network.slow.pop(pair, None)

        self._nemesis.later(fault.for_s, fast)
