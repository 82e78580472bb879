"""A node serves again only when its vault and every recovery listener are up to date (F2, F11: "a listener that is slow
or fails"; seed 000, the first point of its review). In the simulator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from palisade.fencing.messages import HolderPhase
from palisade.metastore.requests import Put
from palisade.node.fencing.fencing_component import FencingComponent
from palisade.node.fencing.view import fencing_view
from tests.sim.node import Host
from tests.sim.scripted import Script, scripted


@pytest.fixture
def script() -> Iterator[Script]:
    """`t/` is strict."""
    with scripted() as made:
        made.make_strict("t")
        yield made


def lapse(script: Script, host: Host) -> None:
    """Pauses the node for longer than its lease, then resumes it."""
    script.process(host).pause()
    script.run_for(2 * script.timing.fence_s)
    script.process(host).resume()


def test_slow_listener_keeps_a_node_from_serving_and_delays_neither_leases_nor_writes(script: Script) -> None:
    host, let_go = script.others[0], asyncio.Event()
    holder, asked = host.part.holder, []

    async def slow() -> None:
        asked.append(script.simulation.now)
        await let_go.wait()

    host.part.listeners["a cache"] = slow
    assert holder.serves, "it is asked at the next recovery"
    lapse(script, host)
    script.run_for(3.0)
    assert len(asked) == 1
    assert (holder.core.state, holder.serves) == (HolderPhase.RECOVERING, False)
    assert holder.core.lease_age(script.process(host).now()) is not None, "it is granted leases meanwhile"
    assert script.write(Put(b"t/a", b"1")) < 0.2, "it has staged, so no write waits for it"
    script.process(host).call(let_go.set)
    script.run_until(lambda: bool(holder.serves), within_s=0.5)


def test_failing_listener_keeps_the_node_fenced_and_is_retried(script: Script) -> None:
    host, tries = script.others[0], 0

    async def failing() -> None:
        nonlocal tries
        tries += 1
        if tries <= 3:
            raise OSError("disk full")

    host.part.listeners["a cache"] = failing
    lapse(script, host)
    script.run_until(lambda: tries == 2, within_s=2)
    lease = fencing_view(host.part, script.process(host).now(), host.node.fencing)["lease"]
    assert not lease["serves"]
    assert lease["listener_failure"] == "a cache: disk full"
    script.run_until(lambda: tries == 4, within_s=5)
    script.run_until(lambda: bool(host.part.holder.serves), within_s=0.5)
    assert tries == 4


def behind(script: Script) -> Host:
    """A node that holds a lease again, and whose vault has not applied what was released during its pause."""
    host = script.others[0]
    script.process(host).pause()
    script.run_for(2 * script.timing.fence_s)
    for number in range(5):
        script.write(Put(b"t/a", b"%d" % number))
    gate = host.part.holder.gate
    gate.enter, gate.enter_leap = lambda revisions: 0, lambda revision: False
    script.process(host).resume()
    script.run_for(3.0)
    assert host.vault is not None
    assert host.vault.revision < host.part.holder.core.released
    return host


def test_node_whose_vault_is_behind_rr_serves_nothing(script: Script) -> None:
    holder = behind(script).part.holder
    assert (holder.core.state, holder.serves) == (HolderPhase.RECOVERING, False)


def test_planted_missing_wait_for_the_vault_is_seen(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: recovery is over as soon as it begins."""
    monkeypatch.setattr(FencingComponent, "_recover", lambda part, holder: holder.recovered(holder.begin_recovery()))
    assert behind(script).part.holder.serves
