"""The state by which rights are cached (`FencedReads.permissions_state`): while it is the same object, every node that
holds a lease reads the same permission rows. A revoke is released only after each holder has staged it, so rights that
were cached before cannot be used after it.

Random walks of a vault that stages, applies, leaps, receives differences, and loses and regains its lease.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from palisade.base.digest import unpack_sums
from palisade.catalog import keys
from palisade.metastore.requests import DeleteRange, Put
from palisade.service.fenced_reads import FencedReads
from palisade.vault.change import Item, item_of
from palisade.vault.errors import VaultUngated
from palisade.vault.fence_page import FENCE_BYTES, FencePage
from palisade.vault.incoming_difference import Incoming
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.position import VaultPosition
from palisade.vault.staging import RowsWatch, VaultStaging
from palisade.vault.vault import Vault
from tests.support.meta_driver import Driver
from tests.support.vault_feed import follow, full, revision_at, staged_of

ROWS = (keys.at(keys.USERS, "alice"), keys.at(keys.ROLES, "writers"))
OTHER = b"/other"
STEPS, SEEDS = 60, 15


class Walk:
    """One vault of a node, and the store of its cluster."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.driver: Driver = full([(key, b"0") for key in (*ROWS, OTHER)])
        self.page = FencePage(bytearray(FENCE_BYTES), b"thisboot")
        self.vault = Vault(MemoryBackend(), self.page)
        self.reads = FencedReads()
        self.now_s = 100.0
        self.staged = 0
        self.seen: dict[tuple[object, bytes], Any] = {}
        follow(self.vault, self.driver)
        self.reads.open(self.vault, asyncio.sleep, lambda: self.now_s)
        self.stage()
        self.release()
        self.serve()

    async def run(self) -> None:
        steps: list[Callable[[], Any]] = [
            *(self.write, self.write, self.stage, self.stage, self.release, self.release, self.apply, self.apply),
            *(self.serve, self.serve, self.lose, self.leap, self.difference),
        ]
        for _ in range(STEPS):
            done = self.rng.choice(steps)()
            if done is not None:
                await done
            self.check()

    def check(self) -> None:
        state = self.reads.permissions_state()
        for key in ROWS if state is not None else ():
            shown = self.reads.at_once(key)
            if shown is not None:
                assert self.seen.setdefault((state, key), shown.item) == shown.item, "another row under the same state"

    # Steps

    def write(self) -> None:
        key = self.rng.choice((*ROWS, OTHER))
        self.driver.do(DeleteRange(key) if self.rng.random() < 0.2 else Put(key, b"%d" % self.driver.store.revision))

    def stage(self) -> None:
        revision, anew = self.driver.store.revision, self.rng.random() < 0.5
        first = min(self.vault.revision, self.vault.staging.released) if anew else self.staged
        rows = [row for number in range(max(first, 1) + 1, revision + 1) for row in staged_of(self.driver, number)]
        self.vault.staging.stage(rows, anew=anew)
        self.staged = revision

    def release(self) -> None:
        """Of what this holder has staged: while it serves, no more is released."""
        self.vault.staging.release(self.rng.choice((self.staged, self.rng.randint(0, self.staged))))

    def apply(self) -> None:
        """While it serves: what it has staged; fenced, all."""
        last = self.rng.choice((self.driver.store.revision, self.rng.randint(2, self.driver.store.revision)))
        if self.vault.revision < last <= (self.staged if self.serving else last):
            try:
                follow(self.vault, self.driver, last)
            except VaultUngated:
                return

    @property
    def serving(self) -> bool:
        return self.page.fence.deadline_ns > 0

    def serve(self) -> None:
        """A vault that returns has every change: applied, while the cluster released it without this holder, or
        staged."""
        if not self.serving:
            if self.vault.revision == self.driver.store.revision:
                self.staged = self.vault.revision
                self.vault.staging.release(self.staged)
            else:
                self.stage()
        self.page.serve(int((self.now_s + 10) * 1e9), 1)

    def lose(self) -> None:
        """By time, or at once."""
        self.now_s += 11 if self.rng.random() < 0.5 else 0
        self.page.refuse()

    async def leap(self) -> None:
        digest = self.driver.store.digest()
        if digest.revision == self.vault.revision or (self.serving and self.staged < digest.revision):
            return
        bodies = [body for number in range(2, digest.revision + 1) for body in revision_at(self.driver, number).bodies]
        rows = {item.key: body if item.version else None for body, item in with_items(bodies)}
        position = VaultPosition(digest.revision, digest.chain, self.driver.store.key_count)
        try:
            await self.vault.leap(lambda: iter([rows]), position, unpack_sums(digest.buckets), pause)
        except VaultUngated:
            return

    def difference(self) -> None:
        digest, live = self.driver.store.digest(), {}
        for number in range(2, digest.revision + 1):
            for body, item in with_items(revision_at(self.driver, number).bodies):
                live[item.key] = body if item.version else None
        incoming = Incoming(self.vault, digest.revision, notify=False)
        incoming.repair([body for body in live.values() if body], [key for key, body in live.items() if not body])
        self.check()
        incoming.finish(digest.chain, unpack_sums(digest.buckets))


def with_items(bodies: list[bytes]) -> list[tuple[bytes, Item]]:
    return [(body, item_of(body)) for body in bodies]


async def pause() -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_permission_rows_are_the_same_under_the_same_state(seed: int) -> None:
    await Walk(seed).run()


async def walks(seeds: int) -> None:
    for seed in range(seeds):
        await Walk(seed).run()


def unchanged_by(name: str, when: Callable[..., bool]) -> Callable[[pytest.MonkeyPatch], None]:
    """Planted: calls of this method of the staging leave the state as it is."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        real = getattr(VaultStaging, name)

        def planted(self: VaultStaging, *given: Any, **named: Any) -> Any:
            before = [(watch, watch.state) for watch in self._watches]
            try:
                return real(self, *given, **named)
            finally:
                if when(*given, **named):
                    for watch, state in before:
                        watch.state = state

        patch.setattr(VaultStaging, name, planted)

    return plant


def by_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RowsWatch, "changed", lambda self, stored: None)


PLANTED = {
    "stage": unchanged_by("stage", lambda *given, **named: not named.get("anew")),
    "stage anew": unchanged_by("stage", lambda *given, **named: bool(named.get("anew"))),
    "apply": unchanged_by("moved", lambda lv, superseded, entries=None: entries is not None),
    "leap": unchanged_by("moved", lambda lv, superseded, entries=None: entries is None),
    "nothing": by_nothing,
}


@pytest.mark.parametrize("fault", PLANTED)
async def test_planted_state_that_outlives_its_rows_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[fault](monkeypatch)
    with pytest.raises(AssertionError, match="another row under the same state"):
        await walks(10 * SEEDS)


async def test_state_is_unknown_without_a_lease() -> None:
    walk = Walk(0)
    assert walk.reads.permissions_state() is not None
    walk.now_s += 10
    assert walk.reads.permissions_state() is None
    walk.serve()
    assert walk.reads.permissions_state() is not None
    walk.page.refuse()
    assert walk.reads.permissions_state() is None
    walk.serve()
    walk.reads.close()
    assert walk.reads.permissions_state() is None


async def test_state_outlives_other_writes_and_renewals() -> None:
    """Otherwise each put would make each caller's rights be read again."""
    walk = Walk(0)
    states = []
    for value in (b"1", b"2", b"3"):
        walk.driver.do(Put(OTHER, value))
        walk.vault.staging.stage(staged_of(walk.driver, walk.driver.store.revision))
        walk.vault.staging.release(walk.driver.store.revision)
        follow(walk.vault, walk.driver)
        walk.serve()
        states.append(walk.reads.permissions_state())
    assert states[0] is states[1] is states[2] is not None, "the first removes the marks of the rows"
