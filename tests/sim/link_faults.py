"""Faults of the network: between two machines, between a machine and its clients, around a machine, everywhere.

A blocked link counts as a fault when it drops something.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from tests.sim.faults import CLIENTS, Fault, Kind
from tests.support.raft_network import Weather

if TYPE_CHECKING:
    from tests.sim.nemesis import Nemesis
    from tests.support.machine import Machine

DEAF_FROM = 0.6
"""An isolation of more than that cuts a machine off from clients as well."""
Pairs = list[tuple[str, str]]
"""Directions: sender and receiver."""


def block(nemesis: Nemesis, pairs: Pairs, for_s: float, struck: Callable[[], None] = lambda: None) -> None:
    """`struck` is called when the first message is dropped."""
    network, waiting = nemesis.world.network, [struck]

    def swallowed() -> None:
        if waiting:
            waiting.pop()()

    network.blocked.update(pairs)
    for pair in pairs:
        network.swallowing.setdefault(pair, []).append(swallowed)

    def over() -> None:
        network.blocked.difference_update(pairs)
        waiting.clear()

    nemesis.later(for_s, over)


def both_ways(ones: Collection[str], others: Collection[str]) -> Pairs:
    return [pair for one in ones for other in others for pair in ((one, other), (other, one))]


def others(nemesis: Nemesis, *names: str) -> list[str]:
    """All machines but these."""
    return [name for name in nemesis.world.hosts if name not in names]


def _other_ends(nemesis: Nemesis, fault: Fault) -> list[str]:
    return list(nemesis.world.callers) if fault.other == CLIENTS else [fault.other]


def isolate(nemesis: Nemesis, fault: Fault, host: Machine) -> None:
    callers = nemesis.world.callers if fault.amount > DEAF_FROM else ()
    pairs = both_ways([host.id], [*others(nemesis, host.id), *callers])
    block(nemesis, pairs, fault.for_s, lambda: nemesis.struck(fault))


def one_way(nemesis: Nemesis, fault: Fault, host: Machine) -> None:
    pairs = [(host.id, other) for other in _other_ends(nemesis, fault)]
    what = "anything of nodes"
    if fault.other == CLIENTS:
        what = "answers" if fault.amount < 0.5 else "questions"
    if what == "questions":
        pairs = [(other, own) for own, other in pairs]

    def struck() -> None:
        nemesis.struck(fault)
        nemesis.world.count(f"lost one way: {what}")

    block(nemesis, pairs, fault.for_s, struck)


def cut(nemesis: Nemesis, fault: Fault, host: Machine) -> None:
    pairs = both_ways([host.id], _other_ends(nemesis, fault))
    block(nemesis, pairs, fault.for_s, lambda: nemesis.struck(fault))


def flap(nemesis: Nemesis, fault: Fault, host: Machine) -> None:
    times = 2 + int(fault.amount * 8)
    pairs, cut_s = both_ways([host.id], _other_ends(nemesis, fault)), fault.for_s / times * 0.6
    for number in range(times):
        at_s = number * fault.for_s / times
        nemesis.later(at_s, lambda: block(nemesis, pairs, cut_s, lambda: nemesis.struck(fault)))


def split(nemesis: Nemesis, fault: Fault, host: Machine) -> None:
    pairs = both_ways([host.id, fault.other], others(nemesis, host.id, fault.other))
    block(nemesis, pairs, fault.for_s, lambda: nemesis.struck(fault))


def storm(nemesis: Nemesis, fault: Fault, _host: Machine) -> None:
    network, amount = nemesis.world.network, fault.amount
    network.weather = Weather((0.0005, 0.001 + 0.15 * amount**2), 0.2 * amount**2, 0.2 * amount, 0.3 * amount)
    nemesis.struck(fault)

    def calm() -> None:
        network.weather = Weather()

    nemesis.later(fault.for_s, calm)


def slow_link(nemesis: Nemesis, fault: Fault, host: Machine) -> None:
    network, pairs = nemesis.world.network, [(host.id, other) for other in _other_ends(nemesis, fault)]
    network.slow.update(dict.fromkeys(pairs, 2.0 * fault.amount**2))
    nemesis.struck(fault)

    def fast() -> None:
        for pair in pairs:
            network.slow.pop(pair, None)

    nemesis.later(fault.for_s, fast)


ACTS = {
    Kind.ISOLATE: isolate, Kind.ISOLATE_LONG: isolate, Kind.ONE_WAY: one_way, Kind.CUT: cut, Kind.FLAP: flap,
    Kind.SPLIT: split, Kind.STORM: storm, Kind.SLOW_LINK: slow_link,
}  # fmt: skip
