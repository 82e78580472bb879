"""Revision by revision through the listeners, then into the vault: as if each update had arrived live (R4).

A revision is in the vault only after every listener is done with it, and was checked against the vault before any was
told. So a listener that fails leaves LV before that revision, and the next start tells it again; none is skipped. The
revisions of one commit are told again if the process dies before it, which is at most `COMMIT_S` of telling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palisade.recovery.apply_gate import ApplyGate, OpenGate
from palisade.recovery.ports import ListenerPort, RecoveryTime
from palisade.vault.change import Revision
from palisade.vault.vault import Vault

COMMIT_S = 0.2
GATE_S = 0.5
"""After so long a closed gate is asked again, should nobody say that it has opened."""
TURN_REVISIONS = 1_000
"""So many are told before others have a turn, even if no listener waits for anything."""


async def tell_and_apply(
    vault: Vault,
    listeners: ListenerPort,
    clock: RecoveryTime,
    revisions: Sequence[Revision],
    go_on: Callable[[], bool] = lambda: True,
    gate: ApplyGate | None = None,
) -> None:
    """LV + 1, LV + 2 ... Raises what a listener raises, VaultDiverged, VaultGap, VaultUnusable.

    What is not told in time was prepared for nothing: so where listeners are slow, fewer are prepared next. `go_on` is
    asked after each commit. What the gate does not let in now is waited for: nobody is told of it before.
    """
    begin, most, gate = 0, len(revisions), gate or OpenGate()
    while begin < len(revisions):
        some = revisions[begin : begin + most]
        free = gate.enter(some)
        if not free:
            await gate.changed(GATE_S)
            continue
        try:
            told = await _tell_some(vault, listeners, clock, some[:free])
        finally:
            gate.leave()
        begin += told
        if not go_on():
            return
        most = max(told, 1) if told < free else 2 * most
        await clock.sleep(0)


async def _tell_some(vault: Vault, listeners: ListenerPort, clock: RecoveryTime, revisions: Sequence[Revision]) -> int:
    """One commit. How many revisions it has."""
    prepared = vault.prepare(revisions)
    until, told, tell, now = clock.now() + COMMIT_S, 0, listeners.revision, clock.now
    try:
        for revision in revisions:
            if revision.bodies:
                await tell(revision)
            told += 1
            if now() >= until:
                break
            if not told % TURN_REVISIONS:
                await clock.sleep(0)
    finally:
        if told == len(revisions):
            vault.adopt(prepared)
        else:
            vault.apply(revisions[:told])
    return told
