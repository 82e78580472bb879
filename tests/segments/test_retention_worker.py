"""The worker that removes what is past its TTL, by a rule that it reads through the fence (issue 4; P6, F7, F11)."""

from __future__ import annotations

import pytest

from palisade.api.http.segment_families import segment_families
from palisade.recovery.listeners import Notification
from palisade.segments.names import TRASH
from palisade.segments.retention import SETTLE_S
from palisade.segments.segment_store import SegmentStore, file_of
from palisade.segments.view import copies_view
from palisade.vault.change import VaultEvent
from palisade.vault.fence_page import FenceState
from tests.support.retention_world import DAYS, GO, KEEP, KEY, TRASH_S, RetentionWorld, Violation
from tests.support.segment_world import SimulatedDisk

ALL = set(DAYS)


async def passes(world: RetentionWorld, count: int = len(DAYS)) -> None:
    for _ in range(count):
        await world.pass_by()
        await world.settle()


async def trashed() -> RetentionWorld:
    """All segments are past their time, and in the trash."""
    world = await RetentionWorld(1).begin()
    world.answered(GO)
    await passes(world)
    assert (world.here, world.in_trash) == (set(), ALL)
    return world


async def test_expired_segment_is_trashed_and_later_purged() -> None:
    world = await RetentionWorld(1).begin()
    await passes(world)
    assert world.here == ALL
    world.answered(GO)
    await world.pass_by()
    assert (world.here, world.in_trash) == (ALL - {DAYS[0]}, {DAYS[0]})
    await passes(world)
    world.later_s += TRASH_S - 1
    await passes(world)
    assert world.in_trash == ALL
    world.later_s += 1
    await passes(world)
    assert not world.files.content
    assert len(world.stock.asked) == len(DAYS)
    tally = world.holder.tally
    assert (tally.trashed, tally.purged, tally.restored, tally.evicted) == (4, 4, 0, 0)


@pytest.mark.parametrize(("key", "tried"), [(KEY, DAYS[:1]), (b"/other", DAYS)])
async def test_pass_ends_when_the_rules_change(key: bytes, tried: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 16: after `unset-ttl`, a pass continued to withdraw the announcement of each segment that it had chosen,
    and trashed segments were missing for minutes."""
    world = await trashed()
    world.later_s += TRASH_S
    purges = list[str]()

    async def purge(name: str, _: object) -> bool:
        purges.append(name)
        await world.listeners.notify(Notification(len(purges), (VaultEvent(key, len(purges), None),)))
        return False

    monkeypatch.setattr(world.holder, "purge", purge)
    world.listeners.open()
    await world.pass_by()
    assert purges == tried


async def test_trashed_segment_is_restored_when_its_rule_is_removed() -> None:
    world = await trashed()
    world.answered(None)
    await passes(world, 1)
    assert (world.here, world.in_trash) == (ALL, set())
    assert len(world.stock.asked) == len(DAYS)
    assert world.holder.tally.restored == len(DAYS)


async def test_purged_segment_is_fetched_again_when_its_rule_is_removed() -> None:
    world = await trashed()
    world.later_s += TRASH_S
    await passes(world)
    assert not world.files.content
    world.answered(KEEP)
    await passes(world, 1)
    assert world.here == ALL
    assert len(world.stock.asked) == 2 * len(DAYS)


async def test_starting_node_fetches_no_expired_segment() -> None:
    """Also before its first look: by the rule that its vault has, since a fetch can be made up for."""
    world = RetentionWorld(1)
    world.commit(GO)
    world.catch_up()
    await world.begin()
    assert not world.stock.asked
    assert world.holder.on(world.vault)._expected(world.holder.wanted) == {}


async def test_unfenced_rule_removes_no_local_segment_at_start() -> None:
    """Recovery evicts what is not assigned: that must be no way around the fence."""
    world = await RetentionWorld(1).begin()
    world.commit(GO)
    world.refuse()
    world.apply(0)
    assert set(world.holder.on(world.vault)._expected(world.holder.wanted)) == ALL


@pytest.mark.parametrize("state", [FenceState.FENCED, FenceState.RECOVERING])
async def test_fenced_node_trashes_purges_and_restores_nothing(state: FenceState) -> None:
    for rule in (GO, None):
        world = await trashed() if rule is None else await RetentionWorld(1).begin()
        before = dict(world.files.content)
        world.refuse()
        if state is FenceState.RECOVERING:
            world.listen(0)
        assert world.stored.page.fence.state is state
        world.answered_without_the_node(rule)
        world.apply(0)
        world.later_s += TRASH_S
        await passes(world)
        assert world.files.content == before
        assert world.expiry.refused == len(DAYS)
        view = copies_view("n1", world.holder, 10)
        assert view["retention"]["works"] is False
        assert view["retention"]["why"]
        world.recover()
        await passes(world)
        assert world.files.content != before


async def test_node_paused_while_a_rule_is_removed_deletes_nothing_by_it() -> None:
    """Issue 4, F11: after `unset ttl` has returned no node deletes by the old rule."""
    world = await trashed()
    world.later_s += TRASH_S
    world.answered_without_the_node(None)
    await passes(world)
    assert world.in_trash == ALL
    world.recover()
    await passes(world, 1)
    assert (world.here, world.in_trash) == (ALL, set())


@pytest.mark.parametrize("purge", [False, True])
async def test_pause_between_look_and_act_is_detected_by_the_second_look(purge: bool) -> None:
    """The rule goes, and is answered, behind the look and before the act."""
    world = await trashed() if purge else await RetentionWorld(1).begin()
    world.answered(GO)
    world.later_s += TRASH_S
    before = dict(world.files.content)
    look = world.worker._still

    def paused(name: str, rules: object) -> bool:
        world.answered_without_the_node(None)
        return look(name, rules)  # type: ignore[arg-type]

    world.worker._still = paused  # type: ignore[method-assign, assignment]
    await world.pass_by()
    assert world.files.content == before
    assert world.expiry.trouble is not None


async def test_rule_changed_before_the_act_applies_from_the_next_pass() -> None:
    world = await RetentionWorld(1).begin()
    world.answered(GO)
    look = world.worker._still

    def changed(name: str, rules: object) -> bool:
        world.answered(KEEP)
        return look(name, rules)  # type: ignore[arg-type]

    world.worker._still = changed  # type: ignore[method-assign, assignment]
    await world.pass_by()
    assert world.here == ALL


async def test_planted_unfenced_rule_cache_is_detected() -> None:
    world = await RetentionWorld(1, "plain_cache").begin()
    world.answered(GO)
    await passes(world)
    world.later_s += TRASH_S
    world.answered_without_the_node(None)
    with pytest.raises(Violation):
        await passes(world)


async def test_random_walks_with_any_event_between_look_and_act() -> None:
    """The rule comes and goes, the node lapses, stands still, restarts, recovers."""
    acts = 0
    for seed in range(150):
        acts += await (await RetentionWorld(seed).begin()).walk_about()
    assert acts > 100


@pytest.mark.parametrize("fault", ["plain_cache", "no_look_at_the_act", "no_deadline", "no_gate"])
async def test_random_walks_detect_the_planted_fault(fault: str) -> None:
    for seed in range(2000):
        try:
            await (await RetentionWorld(seed, fault).begin()).walk_about()
        except Violation:
            return
    pytest.fail(f"nothing was seen of {fault}")


async def test_wall_clock_jump_deletes_nothing_until_it_is_steady() -> None:
    world = await RetentionWorld(1).begin()
    world.answered(KEEP)
    await passes(world)
    world.jumped_s = 1e13
    await passes(world)
    world.later_s += SETTLE_S - 1
    await passes(world)
    assert world.here == ALL
    assert "not steady" in str(world.expiry.trouble)
    world.later_s += 2
    await passes(world)
    assert world.in_trash == ALL
    world.jumped_s = 0.0
    await passes(world, 2)
    assert world.here == ALL


async def test_trash_survives_a_restart_and_its_time_starts_again() -> None:
    world = await trashed()
    world.later_s += TRASH_S
    world.holder.segment_store = SegmentStore(SimulatedDisk(world.files))
    await world.holder.local()
    assert set(world.holder.segment_store.trashed) == ALL
    world.worker._since.clear()
    await passes(world)
    assert world.in_trash == ALL
    world.answered(None)
    await passes(world, 1)
    assert world.here == ALL


async def test_disk_error_on_one_segment_does_not_block_others() -> None:
    world = await RetentionWorld(1).begin()
    world.answered(GO)
    world.files.stubborn.add(file_of(DAYS[0]))
    await passes(world)
    assert "permission denied" in world.holder.retention.view()["why"]
    assert world.here == {DAYS[0]}
    assert world.holder.segment_store.has(DAYS[0], world.holder.wanted[DAYS[0]].digest)
    world.files.stubborn = {TRASH + file_of(DAYS[1])}
    await passes(world, 1)
    world.later_s += TRASH_S
    await passes(world)
    assert world.in_trash == {DAYS[1]}
    world.answered(None)
    await passes(world, 1)
    assert world.holder.retention.view()["why"] is None


async def test_metrics_count_segments_by_state_and_actions() -> None:
    world = await trashed()
    world.later_s += TRASH_S
    await world.pass_by()
    world.refuse()
    await world.pass_by()
    samples = [each for family in segment_families(world.holder) for each in family.samples]
    values = {each.name + each.labels.get("state", ""): each.value for each in samples}
    assert values["palisade_segmentstrashed"] == 3
    assert values["palisade_segmentsexpired"] == 1
    assert values["palisade_segments_trashed_total"] == 4
    assert values["palisade_segments_purged_total"] == 1
    assert values["palisade_segments_restored_total"] == 0
    assert (values["palisade_retention_works"], values["palisade_retention_refused_total"]) == (0, 1)
    assert list(segment_families(None)) == []


async def test_view_distinguishes_all_states() -> None:
    world = await trashed()
    world.later_s += TRASH_S
    await world.pass_by()
    view = copies_view("n1", world.holder, 10)
    assert (view["assigned"], view["expired"], view["trashed"], view["missing"], view["local"]) == (4, 1, 3, 0, 0)
    assert (view["trashings"], view["purged"]) == (4, 1)
    assert view["trash_bytes"] == sum(len(each) for each in world.files.content.values())
