"""Applies revision by revision, first to the listeners, then to the vault: as if each update had arrived live (R4).

A revision is committed to the vault only after every listener has handled it, and is verified against the vault before
any listener is notified. Thus if a listener fails, LV stays before that revision, and the next start repeats it; none
is skipped. If the process dies before a commit, the revisions of that commit are repeated: at most `COMMIT_S` of work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palisade.recovery.apply_gate import ApplyGate, OpenGate
from palisade.recovery.ports import ListenerPort, RecoveryTime
from palisade.vault.change import Revision
from palisade.vault.vault import Vault

COMMIT_S = 0.2
GATE_S = 0.5
"""After this time a closed gate is checked again, in case its opening was not signalled."""
TURN_REVISIONS = 1_000
"""Maximum notifications before others get a turn, even if no listener waits."""


async def notify_and_apply(
    vault: Vault,
    listeners: ListenerPort,
    clock: RecoveryTime,
    revisions: Sequence[Revision],
    go_on: Callable[[], bool] = lambda: True,
    gate: ApplyGate | None = None,
) -> None:
    """LV + 1, LV + 2 ... Raises errors of listeners, VaultDiverged, VaultGap, VaultUnusable.

    Revisions prepared but not notified in time are prepared again: so with slow listeners, fewer are prepared next.
    `go_on` is called after each commit. Revisions that the gate does not admit wait, and are not notified before.
    """
    begin, most, gate = 0, len(revisions), gate or OpenGate()
    while begin < len(revisions):
        some = revisions[begin : begin + most]
        free = gate.enter(some)
        if not free:
            await gate.changed(GATE_S)
            continue
        try:
            notified = await _notify_some(vault, listeners, clock, some[:free])
        finally:
            gate.leave()
        begin += notified
        if not go_on():
            return
        most = max(notified, 1) if notified < free else 2 * most
        await clock.sleep(0)


async def _notify_some(
    vault: Vault, listeners: ListenerPort, clock: RecoveryTime, revisions: Sequence[Revision]
) -> int:
    """One commit. Returns its number of revisions."""
    prepared = vault.prepare(revisions)
    until, notified, notify, now = clock.now() + COMMIT_S, 0, listeners.revision, clock.now
    try:
        for revision in revisions:
            if revision.bodies:
                await notify(revision)
            notified += 1
            if now() >= until:
                break
            if not notified % TURN_REVISIONS:
                await clock.sleep(0)
    finally:
        if notified == len(revisions):
            vault.adopt(prepared)
        else:
            vault.apply(revisions[:notified])
    return notified
