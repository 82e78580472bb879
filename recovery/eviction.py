"""Smart eviction: which of a node's local data still belongs here, unchanged (R5; seed 001, case c).

Data that is assigned here in the present version is kept. All other present data is evicted, and missing assigned data
is fetched. Evictions come first, to free space.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from palisade.recovery.errors import ResourceMissing
from palisade.recovery.eviction_plan import EvictionAction, EvictionPlan, Step, pack_plan, unpack_plan
from palisade.recovery.ports import Resources
from palisade.recovery.report import Counts, RecoveryPhase, RecoveryRecorder
from palisade.vault.vault import PLAN_DUE, Vault


def plan_eviction(
    revision: int, local: Mapping[str, str], assigned: Mapping[str, str], doubtful: Iterable[str] = ()
) -> EvictionPlan:
    """Versions by id, present and assigned. `doubtful`: possibly incomplete, whatever `local` reports."""
    doubt = frozenset(doubtful)
    kept = {name for name, version in local.items() if assigned.get(name) == version} - doubt
    evicted = sorted((local.keys() | doubt) - kept)
    fetched = sorted(assigned.keys() - kept)
    steps = [Step(EvictionAction.EVICT, name) for name in evicted]
    steps += [Step(EvictionAction.FETCH, name, assigned[name]) for name in fetched]
    return EvictionPlan(revision, len(kept), tuple(steps))


async def evict(
    vault: Vault, resources: Resources, recorder: RecoveryRecorder, hold: Callable[[], Awaitable[None]]
) -> None:
    """Create the plan for LV, or continue the stored one, and execute it. Every step may be executed twice.

    `hold` is awaited before each step: it keeps the pin, so that the node can continue from LV afterwards.
    """
    plan, done = await _current_plan(vault, resources)
    total, missing = len(plan.steps), 0
    for number in range(done, total):
        recorder.step(RecoveryPhase.EVICTION, number, total, "resources")
        await hold()
        step = plan.steps[number]
        if not await _carry_out(step, resources):
            missing += 1
        vault.plan_step_done(number + 1)
    vault.store_plan(None)
    recorder.step(RecoveryPhase.EVICTION, total, total, "resources")
    fetched = plan.count(EvictionAction.FETCH) - missing
    recorder.add_counts("resources", Counts(plan.kept, plan.count(EvictionAction.EVICT), fetched, missing))


async def _carry_out(step: Step, resources: Resources) -> bool:
    """Whether the result matches the plan. An unavailable resource is evicted and does not stop the plan."""
    if step.action is EvictionAction.EVICT:
        await resources.evict(step.name)
        return True
    try:
        await resources.fetch(step.name, step.version)
    except ResourceMissing:
        return False
    return True


async def _current_plan(vault: Vault, resources: Resources) -> tuple[EvictionPlan, int]:
    stored, done = vault.plan() or (PLAN_DUE, 0)
    plan = unpack_plan(stored) if stored != PLAN_DUE else None
    if plan is not None and plan.revision == vault.revision:
        return plan, done
    doubtful = plan.open_after(done) if plan is not None else ()
    made = plan_eviction(vault.revision, await resources.local(), await resources.assigned(), doubtful)
    vault.store_plan(pack_plan(made))
    return made, 0
