"""Every order of steps of a primary, its backup and the metadata store, within bounds (issue 17, A1 to A4).

The world is a value; `moves` yields each next world. The copies are kept as the numbers of their entries. Bounds: so
many entries, sequences and disturbances (crashes, lost disks, expired locks, cut connections).

`Rules` holds the decisions, which are those of `catalog/activation.py`. A planted fault replaces one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from palisade.catalog import activation
from palisade.catalog.activation import (
    ActivationRecord,
    ClaimNext,
    Decision,
    LocalSequence,
    ReplicaEvent,
    ReplicaState,
    acknowledgement_needs,
    after,
    committed,
)
from tests.support.breadth_first import Explored, Violated, explore

EPOCH = 1
ENTRIES, SEQUENCES = 2, 5


@dataclass(frozen=True, slots=True)
class Copy:
    """`step`: the next one towards a raised sequence. `token`: of the lock that it holds by its own knowledge. `seen`:
    the revision of the record that its transactions compare. `claim`: the sequence that it has claimed."""

    up: bool = True
    local: LocalSequence | None = None
    entries: tuple[int, ...] = ()
    token: int = 0
    seen: int = 0
    claim: int = 0
    step: str = "idle"
    serving: bool = False
    replica: ReplicaState = ReplicaState.NONE
    attached: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """`revision` of the record counts its writes; `lock`: (token, holder)."""

    copies: tuple[Copy, Copy] = (Copy(), Copy())
    record: ActivationRecord | None = None
    revision: int = 0
    tokens: int = 0
    lock: tuple[int, int] | None = None
    acknowledged: frozenset[int] = frozenset()
    written: int = 0
    disturbances: int = 0

    def with_copy(self, number: int, copy: Copy) -> World:
        return replace(self, copies=(copy, self.copies[1]) if number == 0 else (self.copies[0], copy))


Key = tuple[object, ...]


def key(world: World) -> Key:
    """Of plain values: the product's classes must not be hashed, since hashes of text differ between processes."""
    record, copies = world.record, []
    for copy in world.copies:
        local = copy.local and copy.local.sequence
        lock = copy.token, copy.seen, copy.claim
        copies.append((copy.up, local, copy.entries, lock, copy.step, copy.serving, copy.replica.value, copy.attached))
    agreed = record and (record.sequence, record.state.value, record.owner, record.served)
    counted = world.revision, world.tokens, world.written, world.disturbances
    return (*copies, agreed, world.lock, world.acknowledged, *counted)


@dataclass(frozen=True, slots=True)
class Rules:
    decide: Callable[..., Decision] = activation.decide
    claimed: Callable[..., ActivationRecord] = activation.claimed
    commit_is_guarded: bool = True
    raises_on_loss: bool = True
    in_sync_before_adoption: bool = True


class Explorer:
    def __init__(self, rules: Rules, disturbances: int) -> None:
        self._rules = rules
        self._disturbances = disturbances

    def explore(self) -> Explored[str]:
        """All worlds; ends at the first violation."""
        return explore(World(), key, self._steps_of)

    def _steps_of(self, world: World) -> Iterator[tuple[str, World]]:
        if (why := violated(world, self._rules.decide)) is not None:
            raise Violated(why)
        yield from self.moves(world)

    def moves(self, world: World) -> Iterator[tuple[str, World]]:
        for number in (0, 1):
            for move, then in self._moves_of(world, number):
                yield f"n{number + 1} {move}", then
        if world.disturbances < self._disturbances:
            for move, then in self._disturbed(world):
                yield move, replace(then, disturbances=world.disturbances + 1)

    def _moves_of(self, world: World, number: int) -> Iterator[tuple[str, World]]:
        copy = world.copies[number]
        if not copy.up:
            yield "starts", world.with_copy(number, Copy(local=copy.local, entries=copy.entries))
        elif copy.step == "idle" and not copy.serving and not copy.attached:
            yield from self._idle(world, number)
        elif copy.step != "idle":
            yield from self._raising(world, number)
        if copy.up and copy.serving:
            yield from self._serving(world, number)

    def _idle(self, world: World, number: int) -> Iterator[tuple[str, World]]:
        copy = world.copies[number]
        if world.lock is None:
            decision = self._rules.decide(world.record, copy.local, configured_primary=number == 0, epoch=EPOCH)
            if isinstance(decision, ClaimNext) and sequence(world) < SEQUENCES:
                token = world.tokens + 1
                locked = replace(world, tokens=token, lock=(token, number))
                yield "locks", locked.with_copy(number, replace(copy, token=token, seen=world.revision, step="claim"))
            return
        holder = world.lock[1]
        active = world.copies[holder]
        if (
            holder != number
            and active.up
            and active.serving
            and active.replica is ReplicaState.NONE
            and active.step == "idle"
        ):
            filling = world.with_copy(number, replace(copy, entries=(), attached=True))
            yield (
                "attaches",
                filling.with_copy(holder, replace(active, replica=after(active.replica, ReplicaEvent.ATTACHED))),
            )

    def _raising(self, world: World, number: int) -> Iterator[tuple[str, World]]:
        copy = world.copies[number]
        guarded = world.lock == (copy.token, number) and copy.seen == world.revision
        if copy.step == "claim":
            if not guarded:
                yield "gives up", world.with_copy(number, given_up(copy))
            elif sequence(world) < SEQUENCES:
                record = self._rules.claimed(world.record, "r", f"n{number + 1}", EPOCH)
                then = replace(world, record=record, revision=world.revision + 1)
                yield (
                    "claims",
                    then.with_copy(number, replace(copy, step="write", seen=then.revision, claim=record.sequence)),
                )
        elif copy.step == "write":
            raised = LocalSequence(copy.claim, EPOCH)
            yield "writes", world.with_copy(number, replace(copy, local=raised, step="commit"))
        elif guarded or not self._rules.commit_is_guarded:
            assert world.record is not None
            record = committed(replace(world.record, sequence=copy.claim, owner=f"n{number + 1}"))
            then = replace(world, record=record, revision=world.revision + 1)
            replica = after(copy.replica, ReplicaEvent.SEQUENCE_RAISED)
            yield "commits", then.with_copy(number, replace(copy, step="idle", serving=True, replica=replica))
        else:
            yield "gives up", world.with_copy(number, given_up(copy))

    def _serving(self, world: World, number: int) -> Iterator[tuple[str, World]]:
        copy, other = world.copies[number], world.copies[1 - number]
        if copy.replica is ReplicaState.LOST and copy.step == "idle":
            if self._rules.raises_on_loss:
                yield "begins to raise", world.with_copy(number, replace(copy, step="claim", seen=world.revision))
            else:
                yield "goes on", world.with_copy(number, replace(copy, replica=ReplicaState.NONE))
        if copy.replica is ReplicaState.CATCHING_UP and other.attached:
            yield from self._catching_up(world, number)
        if copy.replica is ReplicaState.IN_SYNC and other.attached and other.local != copy.local:
            yield "is adopted", world.with_copy(1 - number, replace(other, local=copy.local))
        if world.written < ENTRIES:
            yield from self._writes(world, number)

    def _catching_up(self, world: World, number: int) -> Iterator[tuple[str, World]]:
        copy, other = world.copies[number], world.copies[1 - number]
        if other.entries != copy.entries:
            yield "sends its copy", world.with_copy(1 - number, replace(other, entries=copy.entries))
            return
        if not self._rules.in_sync_before_adoption and other.local != copy.local:
            yield "is adopted early", world.with_copy(1 - number, replace(other, local=copy.local))
        yield (
            "is replicated",
            world.with_copy(number, replace(copy, replica=after(copy.replica, ReplicaEvent.CAUGHT_UP))),
        )

    def _writes(self, world: World, number: int) -> Iterator[tuple[str, World]]:
        copy, other = world.copies[number], world.copies[1 - number]
        entry = world.written + 1
        wider = replace(world, written=entry).with_copy(number, replace(copy, entries=(*copy.entries, entry)))
        yield "appends and fails to acknowledge", wider
        needed = acknowledgement_needs(copy.replica)
        if needed is None:
            return
        if "replica" in needed:
            if not other.attached or not other.up:
                return
            wider = wider.with_copy(1 - number, replace(other, entries=(*other.entries, entry)))
        yield f"acknowledges {entry}", replace(wider, acknowledged=world.acknowledged | {entry})

    def _disturbed(self, world: World) -> Iterator[tuple[str, World]]:
        for number in (0, 1):
            copy = world.copies[number]
            if copy.up:
                down = world.with_copy(number, replace(copy, up=False, attached=False))
                yield f"n{number + 1} crashes", cut(down, 1 - number)
        if world.lock is not None:
            yield "the lock expires", replace(world, lock=None)
        if any(copy.attached for copy in world.copies):
            yield "the connection breaks", cut(cut(world, 0), 1)


def sequence(world: World) -> int:
    return 0 if world.record is None else world.record.sequence


def given_up(copy: Copy) -> Copy:
    """It lost the lock or the race: like a start, without the crash."""
    return Copy(local=copy.local, entries=copy.entries)


def cut(world: World, number: int) -> World:
    """The copy detects that the other one is gone."""
    copy = replace(world.copies[number], attached=False)
    if copy.up and copy.serving and copy.replica in (ReplicaState.CATCHING_UP, ReplicaState.IN_SYNC):
        copy = replace(copy, replica=after(copy.replica, ReplicaEvent.DETACHED))
    return world.with_copy(number, copy)


def violated(world: World, decide: Callable[..., Decision]) -> str | None:
    if world.lock is None and all(copy.up and copy.step == "idle" and not copy.serving for copy in world.copies):
        decisions = [
            decide(world.record, copy.local, configured_primary=number == 0, epoch=EPOCH)
            for number, copy in enumerate(world.copies)
        ]
        if not any(isinstance(each, ClaimNext) for each in decisions):
            return f"both copies are up, and neither begins: {decisions}"
    for number, copy in enumerate(world.copies):
        holds = world.lock == (copy.token, number)
        if copy.up and copy.serving and copy.step == "idle" and holds and not world.acknowledged <= set(copy.entries):
            return f"n{number + 1} is active without {sorted(world.acknowledged - set(copy.entries))}"
    return None
