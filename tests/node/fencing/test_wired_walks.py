"""The real wiring under all faults at once, and with planted violations of its rules (`wired_walk.py`).

Longer: `python -m tests.support.wired_walk 1 1000`, optionally followed by `calm`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from palisade.node.fencing.lease_client import LeaseClient
from palisade.node.fencing.lease_server import LeaseServer
from palisade.node.fencing.vault_gate import VaultGate
from palisade.service.strict_changes import StrictBatch, StrictLog
from palisade.service.strict_responses import ReleaseWaiters, StrictResponses
from palisade.vault.pending import StagedChange
from palisade.vault.staging import VaultStaging
from tests.support.wired_walk import walk

Patch = pytest.MonkeyPatch


def test_random_walk_serves_no_stale_value() -> None:
    """Seed 1: a node that had joined again while its registration was being removed was fenced forever."""
    made = walk(1, 8)
    assert min(made.history.checked.values()) > 100


def test_writes_and_changes_of_regions_fence_no_node() -> None:
    """Each entry mixes strict and eventual writes. Seeds 1 to 8 fenced nodes within 0.2 s, since RR had passed the
    revisions staged to them."""
    assert walk(1, 4, calm=True).longest_wait < 0.4


def only_the_last_revision_of_an_entry(patch: Patch) -> None:
    last = lambda batch: (batch.upto, batch.upto) if batch.keys else None  # noqa: E731
    patch.setattr(StrictBatch, "strict", property(last))
    keep = StrictLog._keep
    patch.setattr(StrictLog, "_keep", lambda log, batch: keep(log, batch._replace(after=batch.upto - 1)))


def staged_before_the_commit(patch: Patch) -> None:
    def early(holder: LeaseClient, mark: Any) -> None:
        holder._send_if_any(holder.core.marked(mark, holder._now()))
        rows = [StagedChange(*row) for row in mark.rows]
        asyncio.get_running_loop().call_later(0.01, lambda: holder.vault.staging.stage(rows))

    patch.setattr(LeaseClient, "_mark", early)


def an_open_gate(patch: Patch) -> None:
    patch.setattr(VaultGate, "_free", lambda gate, revisions: len(revisions))
    patch.setattr(VaultGate, "allowed", lambda gate: None)


def released_when_committed(patch: Patch) -> None:
    patch.setattr(ReleaseWaiters, "when", lambda released, revision, until, on_reached: on_reached(True))


def reads_that_wait_for_nothing(patch: Patch) -> None:
    patch.setattr(StrictResponses, "is_pending", lambda answers, request: False)


def a_region_that_waits_for_no_vault(patch: Patch) -> None:
    stage = VaultStaging.stage

    def staged(staging: VaultStaging, rows: Any, **options: Any) -> list[Any]:
        stage(staging, rows, **options)
        return []

    patch.setattr(VaultStaging, "stage", staged)


def a_page_that_stays_active(patch: Patch) -> None:
    patch.setattr(LeaseClient, "_refuse", lambda holder, why, state=None: None)


def grants_without_the_quorum_lease(patch: Patch) -> None:
    grant_all = LeaseServer._grant_all

    def granted(grantor: LeaseServer, now: float) -> None:
        grantor._lease_holds = lambda: True
        grant_all(grantor, now)

    patch.setattr(LeaseServer, "_grant_all", granted)
    patch.setattr(LeaseServer, "end_term", lambda grantor: None)


def releases_before_anybody_has_staged(patch: Patch) -> None:
    turn = LeaseServer._turn

    def eager(grantor: LeaseServer) -> None:
        if grantor.core.rr is not None:
            grantor._on_released(grantor.core.lm)
        turn(grantor)

    patch.setattr(LeaseServer, "_turn", eager)


FAULTS: list[Callable[[Patch], None]] = [
    only_the_last_revision_of_an_entry,
    staged_before_the_commit,
    an_open_gate,
    released_when_committed,
    reads_that_wait_for_nothing,
    a_region_that_waits_for_no_vault,
    a_page_that_stays_active,
    grants_without_the_quorum_lease,
    releases_before_anybody_has_staged,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_planted_broken_rule_is_found(fault: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """A reader gets a stale value, or the vault refuses a change that its gate has admitted (VaultUngated)."""
    fault(monkeypatch)
    for seed in range(1, 13):
        try:
            walk(seed, 5)
        except AssertionError:
            return
    pytest.fail("the fault was not detected")
