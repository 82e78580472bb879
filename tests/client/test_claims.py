"""Locks and elections: one holder at a time, also if it dies, is paused, or is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from palisade.client.claims import HOLDER_S, Claim, Leadership, NotAcquired
from palisade.client.client import Client
from palisade.client.client_closed import ClientClosed
from palisade.client.lease import REVOKE_S, LeaseLost
from palisade.client.operations import Put
from palisade.wire.auth_errors import PermissionsUnknown
from palisade.wire.fencing_errors import ReadPending
from tests.support.claims_world import ClaimsWorld, Holder


@pytest.fixture
def world() -> Iterator[ClaimsWorld]:
    with closing(ClaimsWorld()) as created:
        yield created


class Work:
    """Holds a claim until it is asked to end."""

    def __init__(self, holder: Holder, claim: Claim) -> None:
        self.claim = claim
        self.holder = holder
        self.held = False
        self.end = asyncio.Event()
        self.task = holder.start(self._run())

    async def _run(self) -> None:
        async with self.claim:
            self.held = True
            try:
                await self.end.wait()
            finally:
                self.held = False


def locking(world: ClaimsWorld, name: str, **options: Any) -> Work:
    holder = world.process(name)
    return Work(holder, holder.lock(**options))


def test_lock_passes_from_one_to_the_next_in_the_order_of_the_queue(world: ClaimsWorld) -> None:
    works = []
    for name in ("p1", "p2", "p3"):
        works.append(locking(world, name))
        world.simulation.run_for(0.2)
    tokens = []
    for work in works:
        work.holder.until(lambda work=work: work.held, within_s=1)
        assert [each.held for each in works].count(True) == 1
        tokens.append(work.claim.token)
        world.simulation.run_for(20)
        work.end.set()
    world.simulation.run_for(1)
    assert tokens == sorted(set(tokens))
    assert all(work.task.exception() is None for work in works)
    assert world.group.store.leases() == ()


def test_lock_of_a_killed_holder_is_free_after_its_time(world: ClaimsWorld) -> None:
    first = locking(world, "p1", ttl_s=3)
    first.holder.until(lambda: first.held)
    second = locking(world, "p2", ttl_s=3)
    world.simulation.run_for(10)
    assert not second.held
    first.holder.process.kill()
    killed = world.simulation.now
    second.holder.until(lambda: second.held, within_s=3.5)
    assert world.simulation.now - killed > 1.9
    assert second.claim.token > first.claim.token


def test_token_of_a_paused_holder_no_longer_writes_after_the_lock_has_passed(world: ClaimsWorld) -> None:
    first = locking(world, "p1", ttl_s=3)
    first.holder.until(lambda: first.held)
    second = locking(world, "p2", ttl_s=3)
    first.holder.process.pause()
    second.holder.until(lambda: second.held, within_s=4)
    assert not first.claim.lease.valid
    written = second.holder.run(second.holder.store.txn([second.claim.held()], [Put("/data", "second")]))
    assert written.succeeded
    late = world.process("p1 as it was")
    refused = late.run(late.store.txn([first.claim.held()], [Put("/data", "first")]))
    assert not refused.succeeded
    assert world.value(b"/data") == b"second"
    first.holder.process.resume()
    first.holder.until(first.task.done, within_s=1)
    assert isinstance(first.task.exception(), LeaseLost)
    assert second.held


def test_holder_without_contact_stops_before_the_next_one_starts(world: ClaimsWorld) -> None:
    first = locking(world, "p1", ttl_s=3)
    first.holder.until(lambda: first.held)
    second = locking(world, "p2", ttl_s=3)
    world.simulation.run_for(0.5)
    first.holder.store.cut_off = True
    while not second.held:
        world.simulation.run_for(0.01)
        assert not (first.held and second.held)
    first.holder.until(first.task.done, within_s=3)
    assert isinstance(first.task.exception(), LeaseLost)


def test_waiting_claimant_that_dies_does_not_block_the_queue(world: ClaimsWorld) -> None:
    works = []
    for name in ("p1", "p2", "p3"):
        works.append(locking(world, name, ttl_s=3))
        world.simulation.run_for(0.2)
    works[1].holder.process.kill()
    world.simulation.run_for(5)
    assert works[0].held
    assert not works[2].held
    works[0].end.set()
    works[2].holder.until(lambda: works[2].held, within_s=1)


def test_waiting_claimant_whose_lease_is_lost_raises_and_does_not_hold(world: ClaimsWorld) -> None:
    first, second = locking(world, "p1"), None
    first.holder.until(lambda: first.held)
    second = locking(world, "p2")
    world.simulation.run_for(1)
    first.holder.run(first.holder.store.lease_revoke(second.claim.lease.id))
    second.holder.until(second.task.done, within_s=2)
    assert isinstance(second.task.exception(), LeaseLost)
    first.end.set()
    world.simulation.run_for(1)
    assert not second.held


def test_lock_that_is_not_free_in_time_is_not_acquired_and_leaves_nothing(world: ClaimsWorld) -> None:
    first = locking(world, "p1")
    first.holder.until(lambda: first.held)
    other = world.process("p2")
    for wait_s in (0.0, 2.0):
        began = world.simulation.now
        with pytest.raises(NotAcquired, match=rf"/locks/a is held by /locks/a/[0-9a-f]+ \(token {first.claim.token}\)"):
            other.run(other.lock(timeout_s=wait_s).acquire())
        assert wait_s <= world.simulation.now - began < wait_s + 0.2
    assert world.group.store.leases() == (first.claim.lease.id,)


@pytest.mark.parametrize(("ttl_s", "wait_s"), [(20, 2.0), (6, 5.5)])
def test_lock_that_is_not_free_in_time_is_not_acquired_also_without_a_majority(
    world: ClaimsWorld, ttl_s: float, wait_s: float
) -> None:
    """The error was that of a read that only names the holder: exit code 3 instead of 1, later than its time."""
    first = locking(world, "p1")
    first.holder.until(lambda: first.held)
    holder = world.process("p2")
    began, second = world.simulation.now, Work(holder, holder.lock(ttl_s=ttl_s, timeout_s=wait_s))
    world.simulation.run_for(1)
    holder.store.cut_off = True
    holder.until(second.task.done, within_s=wait_s + HOLDER_S + REVOKE_S)
    assert world.simulation.now - began >= wait_s
    error = second.task.exception()
    assert isinstance(error, NotAcquired)
    assert str(error) == (
        f"/locks/a was not acquired within {wait_s:g} s; its holder could not be read: no answer; the claim before it "
        f"is {first.claim.key.decode()}"
    )


def test_waiting_claimant_survives_the_loss_of_the_leader(world: ClaimsWorld) -> None:
    """Reads fail meanwhile; the lease is longer than the outage."""
    first = locking(world, "p1", ttl_s=20)
    first.holder.until(lambda: first.held)
    second = locking(world, "p2", ttl_s=20)
    world.simulation.run_for(1)
    world.group.leading = False
    world.simulation.run_for(6)
    world.group.leading = True
    world.simulation.run_for(6)
    first.end.set()
    second.holder.until(lambda: second.held, within_s=2)


def test_leader_announces_its_value_and_the_next_one_follows(world: ClaimsWorld) -> None:
    seen: list[bytes | None] = []
    onlooker = world.process("onlooker")

    async def look() -> None:
        async for leader in onlooker.store.observe("/leader"):
            seen.append(None if leader is None else leader.value)

    onlooker.start(look())
    world.simulation.run_for(0.5)
    p1, p2 = world.process("p1"), world.process("p2")
    first = Work(p1, p1.campaign("n1"))
    p1.until(lambda: first.held)
    second = Work(p2, p2.campaign("n2"))
    world.simulation.run_for(0.5)
    assert isinstance(first.claim, Leadership)
    p1.run(first.claim.proclaim("n1, moved"))
    world.simulation.run_for(0.5)
    leader = p2.run(p2.store.leader("/leader"))
    assert (leader.value, leader.create_revision) == (b"n1, moved", first.claim.token)
    p1.process.kill()
    p2.until(lambda: second.held, within_s=4)
    world.simulation.run_for(0.5)
    second.end.set()
    world.simulation.run_for(0.5)
    assert seen == [None, b"n1", b"n1, moved", b"n2", None]
    assert p2.run(p2.store.leader("/leader")) is None


def test_observer_continues_after_an_outage_longer_than_its_deadline(world: ClaimsWorld) -> None:
    """`palisade elect --listen` ended after 5.5 s without a leader, although `palisade watch` continues (issue 16)."""
    seen: list[bytes | None] = []
    onlooker = world.process("onlooker")

    async def look() -> None:
        async for leader in onlooker.store.observe("/leader"):
            seen.append(None if leader is None else leader.value)

    world.group.leading = False
    onlooker.start(look())
    world.simulation.run_for(60)
    assert seen == []
    world.group.leading = True
    world.simulation.run_for(6)
    assert seen == [None]
    p1 = world.process("p1")
    first = Work(p1, p1.campaign("n1"))
    p1.until(lambda: first.held)
    world.simulation.run_for(0.5)
    assert seen == [None, b"n1"]


@pytest.mark.parametrize("error", [PermissionsUnknown("no leader"), ReadPending("not released")])
def test_claims_and_leases_outlive_errors_that_a_retry_may_mend(world: ClaimsWorld, error: Exception) -> None:
    """With authorization on, nodes without a leader refuse requests because they cannot read the permissions: waiting
    claims and observers ended, and held leases counted as lost before their time."""
    seen: list[bytes | None] = []
    holder, second, onlooker = (world.process(name) for name in ("p1", "p2", "onlooker"))
    first = Work(holder, holder.campaign("n1", ttl_s=10))
    holder.until(lambda: first.held)
    waiting = Work(second, second.campaign("n2", ttl_s=10))
    world.simulation.run_for(0.5)

    async def look() -> None:
        async for leader in onlooker.store.observe("/leader"):
            seen.append(None if leader is None else leader.value)

    for each in (holder, second, onlooker):
        each.store.refuses = error
    onlooker.start(look())
    world.simulation.run_for(5)
    assert (first.held, waiting.held, seen) == (True, False, [])
    holder.store.refuses = onlooker.store.refuses = None
    world.simulation.run_for(1)
    assert (first.held, waiting.held, seen) == (True, False, [b"n1"])
    first.end.set()
    world.simulation.run_for(1)
    second.store.refuses = None
    world.simulation.run_for(1)
    assert (waiting.held, seen) == (True, [b"n1", b"n2"])


@pytest.mark.parametrize("waits", ["observes", "waits for the lock"])
async def test_closed_client_ends_those_that_wait_for_a_claim(waits: str) -> None:
    """They repeated their request without an end."""
    client = Client("127.0.0.1:9")
    lock = client.lock("/locks/a")
    lock._token = 7
    with pytest.raises(ClientClosed, match="not open"):
        async with asyncio.timeout(5):
            await (anext(client.observe("/leader")) if waits == "observes" else lock._has_turn(waits=True))


def test_former_leader_cannot_proclaim(world: ClaimsWorld) -> None:
    p1, p2 = world.process("p1"), world.process("p2")
    leadership = p1.campaign("n1")
    p1.run(leadership.acquire())
    p2.run(p2.store.lease_revoke(leadership.lease.id))
    with pytest.raises(LeaseLost, match="the value was not changed"):
        p1.run(leadership.proclaim("still me"))


def test_lock_is_held_by_one_process_at_a_time_under_kills_and_pauses() -> None:
    """Of every write that a token permitted, the tokens never decrease."""
    for seed in range(20):
        with closing(ClaimsWorld(seed)) as world:
            disturb(world)


def disturb(world: ClaimsWorld) -> None:
    random, works = world.simulation.random, [locking(world, f"p{number}", ttl_s=2) for number in range(4)]
    tokens: list[int] = []
    for step in range(60):
        world.simulation.run_for(random.random())
        work = random.choice(works)
        action = random.choice(("pause", "resume", "kill", "end", "cut off", "nothing"))
        if action == "pause":
            work.holder.process.pause()
        elif action == "resume":
            work.holder.process.resume()
        elif action == "cut off":
            work.holder.store.cut_off = not work.holder.store.cut_off
        elif action == "end":
            work.end.set()
        elif action == "kill":
            work.holder.process.kill()
        if action in ("kill", "end"):
            works[works.index(work)] = locking(world, f"s{step}", ttl_s=2)
        tokens += written(world, works)
        assert sum(each.held and each.claim.lease.valid for each in works) <= 1
    assert tokens == sorted(tokens)
    assert len(set(tokens)) > 3


def written(world: ClaimsWorld, works: list[Work]) -> list[int]:
    """The tokens of the claimants that take themselves for the holder, and whose write is accepted."""
    client = world.process("writer")
    return [
        work.claim.token
        for work in works
        if work.held and client.run(client.store.txn([work.claim.held()], [Put("/data", "x")])).succeeded
    ]


def test_planted_claim_that_does_not_wait_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(self: Claim, *, waits: bool) -> bool:
        return True

    monkeypatch.setattr(Claim, "_has_turn", at_once)
    with pytest.raises(AssertionError):
        test_lock_is_held_by_one_process_at_a_time_under_kills_and_pauses()
