"""Faults of readers of a vault: what they check before they trust what they have read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import palisade.vault.reader
from palisade.vault.fence_page import SEQUENCE_WORD, Fence
from palisade.vault.read_policies import Course, Unreachable
from palisade.vault.reader import VaultReader
from palisade.vault.reader_source import ReaderSource
from palisade.vault.regions import Regions
from palisade.vault.snapshot_reads import VaultSnapshot
from palisade.vault.staging import VaultStaging
from palisade.vault.vault import Vault
from tests.sim import readers
from tests.sim.faults import Fault, Kind
from tests.sim.plants.plant import MANY, MEMBER_CUT_OFF, Patch, Stage, caught_by, with_faults
from tests.sim.world import Settings
from tests.support.simulation import Process

BEFORE_A_SNAPSHOT = 0.25
"""As `amount`: `tests.support.stepped_reader.Step`, and which one of the next ones."""
RESTARTED = Stage("many", 3, tuple(
    fault
    for number in range(10)
    for fault in (
        Fault(1.0 + 4.0 * number, Kind.ISOLATE, "f1", "n1", 3.0),
        *(
            Fault(1.2 + 4.0 * number, Kind.RESTART_IN_READ, member, "n1", 1.2, BEFORE_A_SNAPSHOT)
            for member in ("n1", "n2", "n3")
        ),
    )
), Settings())  # fmt: skip
"""Between a check of the page and the snapshot; nothing is released meanwhile, since `f1` is waited for."""


@caught_by("fenced reads", on=MEMBER_CUT_OFF)
def hot_reads_without_the_page(patch: Patch) -> None:
    """A page is trusted forever: neither another sequence nor the deadline ends it."""
    trust = VaultReader._trust

    def trusting(self: VaultReader, fence: Fence, source: ReaderSource) -> None:
        trust(self, fence, source)
        sequence, deadline_ns, _, begin, entries, marks, _ = self._hot
        words: Any = {SEQUENCE_WORD: sequence}
        self._hot = (sequence, deadline_ns, words, begin, entries, marks, lambda: 0)

    patch.setattr(VaultReader, "_trust", trusting)


@caught_by("snapshots", on=MEMBER_CUT_OFF)
def ranges_of_two_revisions(patch: Patch) -> None:
    """Strict keys as of RR beside others as of LV, as of one revision: what a removed member answered (issue 16)."""
    patch.setattr(Regions, "all_strict", Regions.has_strict)


@caught_by("waited reads", on=MEMBER_CUT_OFF)
def waits_that_wait_for_nothing(patch: Patch) -> None:
    def at_once(revision: int, lv: Callable[[], int], now: float, timeout_s: float) -> Course[int]:
        return revision
        yield

    patch.setattr(palisade.vault.reader, "reach", at_once)


@caught_by("fenced reads", on=replace(RESTARTED, seed=17))
def reads_without_the_second_look(patch: Patch) -> None:
    """The page is checked before the snapshot is taken, and not after it."""

    def once(self: VaultReader, read: Callable[[VaultSnapshot, int], Any]) -> Any:
        with self._turn:
            fence = self._verified()
            if isinstance(fence, Unreachable):
                return fence
            source = self._require_source()
            return read(VaultSnapshot(source.begin(), source.tables), fence.released)

    patch.setattr(VaultReader, "_look", once)


SERVER_PAUSED = with_faults(*(Fault(2.0 + 5.0 * number, Kind.PAUSE, "f1", for_s=4.5) for number in range(4)), seed=4)
"""For longer than its lease: the page of `f1` stays as it is, and its readers go on."""


@caught_by("fenced reads", on=SERVER_PAUSED)
def deadlines_that_readers_ignore(patch: Patch) -> None:
    trust = VaultReader._trust
    patch.setattr(
        VaultReader, "_trust", lambda self, fence, source: trust(self, fence._replace(deadline_ns=1 << 62), source)
    )


@caught_by("fenced reads", on=replace(MANY, seed=10))
def rows_that_readers_overlook(patch: Patch) -> None:
    """`get` returns what the vault has applied, whether or not a later change is staged."""
    trust = VaultReader._trust
    patch.setattr(VaultReader, "_trust", lambda self, fence, source: trust(self, fence._replace(pending=0), source))


@caught_by("fenced reads", on=MANY)
def stages_that_no_page_shows(patch: Patch) -> None:
    """A reader looks for no row, and at no new snapshot, as long as the page is the same."""
    patch.setattr(VaultStaging, "committed", lambda self, **_: None)


@caught_by("fenced reads", "waited reads", on=MEMBER_CUT_OFF)
def snapshots_that_are_kept(patch: Patch) -> None:
    """For ten reads."""
    of = readers.reader_of

    def keeping(vault: Vault, process: Process, steps: readers.Steps) -> VaultReader:
        reader, kept = of(vault, process, steps), list[Any]()
        source: Any = reader._source
        begin = source.begin

        def begun() -> Any:
            if len(kept) % 10 == 0:
                kept[:] = [begin()]
            kept.append(kept[0])
            return kept[0]

        source.begin = begun
        reader._trust(reader._fence, source)
        return reader

    patch.setattr(readers, "reader_of", keeping)


@caught_by("waited reads", on=replace(MANY, seed=15))
def reads_that_name_a_later_revision(patch: Patch) -> None:
    at_once = VaultReader.at_once

    def later(self: VaultReader, key: bytes) -> Any:
        shown = at_once(self, key)
        return shown and replace(shown, revision=shown.revision + 5)

    patch.setattr(VaultReader, "at_once", later)
