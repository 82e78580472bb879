"""Leases, locks and elections of the blocking client."""

from __future__ import annotations

import threading

import pytest

import palisade
from palisade.client.claims import NotAcquired
from palisade.client.lease import LeaseLost
from palisade.client.sync_client import SyncClient
from tests.support.threaded_node import ThreadedNode


def test_sync_lease_keeps_its_keys_until_it_is_left(blocking: SyncClient) -> None:
    with blocking.lease(10) as lease:
        blocking.put("/workers/w1", "up", lease=lease.id)
        lease.check()
        assert lease.valid
        assert 8 < lease.remaining_s <= 10
    assert blocking.get("/workers/w1") is None


def test_sync_lock_is_held_by_one_thread_at_a_time(blocking: SyncClient) -> None:
    order: list[tuple[str, int]] = []

    def work(name: str) -> None:
        with blocking.lock("/locks/a") as lock:
            order.append((f"{name} in", lock.token))
            blocking.txn([lock.held()], success=[palisade.Put("/data", name)])
            order.append((f"{name} out", lock.token))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert [name.split()[1] for name, _ in order] == ["in", "out"] * 3
    assert [name.split()[0] for name, _ in order[::2]] == [name.split()[0] for name, _ in order[1::2]]
    tokens = [token for _, token in order]
    assert tokens == sorted(tokens)
    assert blocking.leases() == ()


def test_sync_lock_that_is_held_is_not_acquired(blocking: SyncClient) -> None:
    with blocking.lock("/locks/a"), pytest.raises(NotAcquired, match="/locks/a is held by"):
        blocking.lock("/locks/a", timeout_s=0).acquire()


def test_sync_lock_that_was_lost_is_reported_when_it_is_left(blocking: SyncClient) -> None:
    with pytest.raises(LeaseLost), blocking.lock("/locks/a", ttl_s=1) as lock:  # noqa: PT012
        blocking.lease_revoke(lock.lease.id)
        while lock.lease.valid:
            blocking.ping()
        with pytest.raises(LeaseLost):
            lock.check()
        assert not blocking.txn([lock.held()], success=[palisade.Put("/data", "late")]).succeeded


def test_sync_leadership_is_announced_and_observed(blocking: SyncClient, threaded: ThreadedNode) -> None:
    with SyncClient([threaded.address], follow_leader=False) as other:
        leaders = other.observe("/leader")
        assert next(leaders) is None
        with blocking.campaign("/leader", "n1") as leadership:
            first = next(leaders)
            assert first is not None
            assert (first.value, first.create_revision) == (b"n1", leadership.token)
            leadership.proclaim("n1, moved")
            second = next(leaders)
            assert second is not None
            assert second.value == b"n1, moved"
            assert blocking.leader("/leader") == second
        assert next(leaders) is None
