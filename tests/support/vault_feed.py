"""A metadata store and its change feed, in the form that a vault needs: for the tests of vault and recovery."""

from __future__ import annotations

import random
from collections.abc import Iterable

from palisade.metastore.limits import Limits, Retention
from palisade.metastore.record import LINK_BYTES
from palisade.metastore.requests import Command, Compact, DeleteRange, Put, Range, Txn
from palisade.vault.change import Revision, item_of
from palisade.vault.staging import StagedChange
from palisade.vault.vault import Vault
from tests.support.meta_driver import Driver


def revision_at(driver: Driver, number: int) -> Revision:
    """All changes of a retained revision."""
    rows = next(iter(driver.store._history.revisions(number, number)), (number, []))[1]
    return Revision(number, [row[LINK_BYTES:] for row, _ in rows], driver.store.chain_at(number) or b"")


def revisions(driver: Driver, first: int, last: int | None = None) -> list[Revision]:
    return [revision_at(driver, number) for number in range(first, (last or driver.store.revision) + 1)]


def staged_of(driver: Driver, revision: int) -> list[StagedChange]:
    """The rows of a revision that a holder is staged."""
    items = [(body, item_of(body)) for body in revision_at(driver, revision).bodies]
    return [StagedChange(revision, item.key, body if item.version else None) for body, item in items]


def follow(vault: Vault, driver: Driver, last: int | None = None) -> None:
    """The vault applies everything that it does not have yet."""
    vault.apply(revisions(driver, vault.revision + 1, last))


def state_of(driver: Driver, revision: int = 0) -> list[tuple[object, ...]]:
    """Every existing key of the metadata store, in the form of `items_of` of a vault."""
    return [tuple(kv) for kv in driver.store.range(Range(b"\0", b"\0", revision=revision)).kvs]


def items_of(vault: Vault) -> list[tuple[object, ...]]:
    return [tuple(item) for item in vault.range(b"")]


def write_some(driver: Driver, rng: random.Random, writes: int, keys: int = 200) -> None:
    """Puts, deletes and transactions of several keys, some of them longer than a backend takes."""
    for _ in range(writes):
        driver.do(some_write(rng, keys))


def some_write(rng: random.Random, keys: int) -> Command:
    kind = rng.random()
    if kind < 0.6:
        return Put(some_key(rng, keys), rng.randbytes(rng.randrange(40)))
    if kind < 0.8:
        return DeleteRange(some_key(rng, keys))
    chosen = sorted({some_key(rng, keys) for _ in range(4)})
    return Txn(success=tuple(Put(key, b"%d" % rng.randrange(1000)) for key in chosen))


def some_key(rng: random.Random, keys: int) -> bytes:
    number = rng.randrange(keys)
    return b"/k/%04d" % number if number % 7 else b"/long/" + b"x" * (470 + number % 20) + b"/%04d" % number


def compact(driver: Driver, revision: int) -> None:
    driver.do(Compact(revision))
    driver.collect_all()


def full(writes: Iterable[tuple[bytes, bytes]]) -> Driver:
    """A metadata store with these puts. Only `compact` compacts."""
    driver = Driver(limits=Limits(), retention=Retention())
    for key, value in writes:
        driver.do(Put(key, value))
    return driver
