"""A lease that renews itself: as long as it can, and never believed to be valid for longer than the store grants it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from palisade.client.lease import Lease, LeaseLost
from palisade.metastore.errors import LeaseNotFound
from palisade.metastore.requests import ttl_ms_of
from palisade.metastore.results import LeaseResult
from palisade.raftgroup.errors import Unavailable
from tests.support.claims_world import ClaimsWorld


@pytest.fixture
def world() -> Iterator[ClaimsWorld]:
    with closing(ClaimsWorld()) as created:
        yield created


def test_lease_is_renewed_until_it_is_left_and_takes_its_keys_with_it(world: ClaimsWorld) -> None:
    holder = world.process("p1")

    async def work() -> None:
        async with holder.lease(3) as lease:
            await holder.store.put("/workers/p1", "up", lease=lease.id)
            await asyncio.sleep(30)
            assert lease.valid
            assert 1.9 < lease.remaining_s <= 3
        assert not lease.valid or lease.remaining_s <= 3

    running = holder.start(work())
    holder.until(lambda: world.value(b"/workers/p1") == b"up")
    world.simulation.run_for(25)
    assert world.value(b"/workers/p1") == b"up"
    holder.until(running.done)
    running.result()
    assert world.value(b"/workers/p1") is None
    assert world.group.store.leases() == ()


def test_lease_of_a_killed_holder_expires(world: ClaimsWorld) -> None:
    holder = world.process("p1")
    lease = holder.lease(3)
    holder.run(lease.start())
    world.simulation.run_for(10)
    assert world.group.store.leases() == (lease.id,)
    holder.process.kill()
    world.simulation.run_for(3.2)
    assert world.group.store.leases() == ()


def test_lease_of_a_paused_holder_is_lost_at_once_when_it_resumes(world: ClaimsWorld) -> None:
    """By the clock, before any message: the holder must not continue for the duration of a request."""
    holder = world.process("p1")
    lease = holder.lease(3)
    holder.run(lease.start())
    holder.process.pause()
    world.simulation.run_for(5)
    assert not lease.valid
    with pytest.raises(LeaseLost, match="the holder was paused"):
        lease.check()
    holder.process.resume()
    assert "not renewed in time" in str(holder.run(lease.wait_lost()))


def test_lease_of_a_holder_without_contact_is_lost_before_the_store_expires_it(world: ClaimsWorld) -> None:
    holder = world.process("p1")
    lease = holder.lease(3)
    holder.run(lease.start())
    holder.store.cut_off = True
    lost_at = expired_at = 0.0
    while not (lost_at and expired_at):
        world.simulation.run_for(0.01)
        lost_at = lost_at or (0.0 if lease.valid else world.simulation.now)
        expired_at = expired_at or (0.0 if world.group.store.leases() else world.simulation.now)
    assert lost_at <= expired_at
    holder.run(lease.wait_lost())


def test_lease_survives_an_outage_shorter_than_its_time(world: ClaimsWorld) -> None:
    holder = world.process("p1")
    lease = holder.lease(8)
    holder.run(lease.start())
    holder.store.cut_off = True
    world.simulation.run_for(5)
    holder.store.cut_off = False
    world.simulation.run_for(30)
    assert lease.valid


def test_lease_that_another_client_revokes_is_lost_at_the_next_renewal(world: ClaimsWorld) -> None:
    holder, other = world.process("p1"), world.process("p2")
    lease = holder.lease(3)
    holder.run(lease.start())
    other.run(other.store.lease_revoke(lease.id))
    holder.until(lambda: not lease.valid, within_s=1.2)
    with pytest.raises(LeaseLost, match=str(lease.id)):
        lease.check()


def test_body_is_cancelled_when_its_lease_is_lost(world: ClaimsWorld) -> None:
    holder, other, seen = world.process("p1"), world.process("p2"), []

    async def work() -> None:
        async with holder.lease(3) as lease:
            seen.append(lease.id)
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

    running = holder.start(work())
    holder.until(lambda: bool(seen))
    other.run(other.store.lease_revoke(seen[0]))
    holder.until(running.done, within_s=1.5)
    assert seen[1:] == ["cancelled"]
    assert isinstance(running.exception(), LeaseLost)
    assert running.cancelling() == 0


def test_body_that_ends_after_the_loss_raises_it_and_is_not_cancelled_later(world: ClaimsWorld) -> None:
    holder, other, seen = world.process("p1"), world.process("p2"), []

    async def ignoring_the_cancellation() -> None:
        async with holder.lease(3) as lease:
            seen.append(lease.id)
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1000)

    async def work() -> None:
        with pytest.raises(LeaseLost):
            await ignoring_the_cancellation()
        await asyncio.sleep(1)
        seen.append("went on")

    running = holder.start(work())
    holder.until(lambda: bool(seen))
    other.run(other.store.lease_revoke(seen[0]))
    holder.until(running.done, within_s=5)
    running.result()
    assert seen[1:] == ["went on"]


def test_cancellation_from_outside_is_not_taken_for_a_loss(world: ClaimsWorld) -> None:
    holder, seen = world.process("p1"), []

    async def work() -> None:
        async with holder.lease(3) as lease:
            seen.append(lease.id)
            await asyncio.sleep(1000)

    running = holder.start(work())
    holder.until(lambda: bool(seen))
    running.cancel()
    holder.until(running.done)
    assert running.cancelled()
    world.simulation.run_for(0.2)
    assert world.group.store.leases() == ()


@pytest.mark.parametrize("ttl_s", [0.2, 0.5, 1.5])
def test_short_lease_is_kept_through_one_failed_renewal(world: ClaimsWorld, ttl_s: float) -> None:
    """Planted (a pause of RETRY_S): a lease of 0.2 s is lost by one failed renewal."""
    holder = world.process("p1")
    store = FailsOnce(holder.process.now)
    lease = Lease(store, ttl_s, clock=holder.process.now)
    holder.run(lease.start())
    for _ in range(500):
        world.simulation.run_for(ttl_s / 50)
        assert lease.valid
    assert store.failed == 1


class FailsOnce:
    """Its second renewal fails."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.renewals = self.failed = self.ttl_ms = 0

    async def lease_grant(self, ttl_s: float, id: int = 0) -> LeaseResult:  # noqa: A002
        self.ttl_ms = ttl_ms_of(ttl_s)
        return LeaseResult(2, 7, self.ttl_ms)

    async def lease_keep_alive(self, lease: int) -> LeaseResult:
        self.renewals += 1
        if self.renewals == 2:
            self.failed += 1
            raise OSError("the connection was reset")
        return LeaseResult(2, 7, self.ttl_ms)

    async def lease_revoke(self, lease: int) -> LeaseResult:
        raise LeaseNotFound("gone")


class SlowStore:
    """A renewal is applied `delay_s` after it was sent."""

    def __init__(self, now: Callable[[], float], delay_s: float) -> None:
        self.now, self.delay_s = now, delay_s
        self.expires = 0.0

    async def lease_grant(self, ttl_s: float, id: int = 0) -> LeaseResult:  # noqa: A002
        self.expires = self.now() + ttl_s
        await asyncio.sleep(self.delay_s)
        return LeaseResult(2, 7, ttl_ms_of(ttl_s))

    async def lease_keep_alive(self, lease: int) -> LeaseResult:
        self.expires = self.now() + 3
        await asyncio.sleep(self.delay_s)
        return LeaseResult(2, 7, 3_000)

    async def lease_revoke(self, lease: int) -> LeaseResult:
        raise LeaseNotFound("gone")


def test_lease_counts_its_time_from_before_the_request(world: ClaimsWorld) -> None:
    """Planted: counted from the response, the holder's deadline is later than the store's."""
    holder = world.process("p1")
    store = SlowStore(holder.process.now, 0.7)
    lease = Lease(store, 3, clock=holder.process.now)
    holder.run(lease.start())
    for _ in range(500):
        world.simulation.run_for(0.05)
        assert holder.process.now() + lease.remaining_s <= store.expires + 1e-9
    assert lease.valid


def test_closed_lease_has_the_reason_why_it_was_not_revoked(world: ClaimsWorld) -> None:
    """The reason was lost, so a command could not report that its lock still exists (issue 16)."""
    holder = world.process("p1")
    reasons = list[str | None]()

    async def closed(error: Exception | None) -> None:
        lease = holder.lease(3)
        await lease.start()

        async def revoke(_: int) -> LeaseResult:
            if error is not None:
                raise error
            await asyncio.sleep(3600)
            raise AssertionError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(holder.store, "lease_revoke", revoke)
            await lease.close()
        reasons.append(lease.not_revoked)

    for error in (None, Unavailable("no leader"), LeaseNotFound("lease 5 does not exist")):
        holder.run(closed(error))
    assert reasons == ["no answer within 2 s", "no leader", None]
