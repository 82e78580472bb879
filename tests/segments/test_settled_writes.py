"""No announcement commits after the withdrawal that follows it, however late an attempt arrives (issue 17, S5)."""

from __future__ import annotations

import pytest

from palisade.base.errors import PalisadeError
from palisade.metastore.errors import LeaseNotFound
from palisade.metastore.requests import Put, RequestId, Txn
from palisade.metastore.results import TxnResult
from palisade.raftgroup.errors import OutcomeUnknown, Unavailable
from palisade.segments.settled_writes import SettledWrites
from palisade.wire.fencing_errors import ReleasePending
from tests.support.announcing_world import DAYS, AnnouncingWorld, planted
from tests.support.segment_names import segment

A, B = (Txn((), (Put(key, b""),)) for key in (b"a", b"b"))
DONE = TxnResult(7, True, ())


class Cluster:
    """Answers each attempt with the next of `answers`."""

    def __init__(self, *answers: TxnResult | Exception) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[Txn, RequestId]] = []

    async def send(self, request: Txn, request_id: RequestId) -> TxnResult:
        self.sent.append((request, request_id))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def numbers(self) -> list[int]:
        return [each.sequence for _, each in self.sent]


async def test_write_with_an_unknown_outcome_is_repeated_under_its_id_before_the_next_one() -> None:
    cluster = Cluster(OutcomeUnknown("no response"), DONE, DONE)
    writes = SettledWrites("n1", cluster.send)
    with pytest.raises(OutcomeUnknown):
        await writes.write(A)
    assert await writes.write(B) == DONE
    assert cluster.sent == [(A, RequestId("n1", 1)), (A, RequestId("n1", 1)), (B, RequestId("n1", 2))]


@pytest.mark.parametrize("trouble", [Unavailable("no leader"), OutcomeUnknown("no response")])
async def test_write_is_not_sent_while_the_outcome_of_the_last_one_is_unknown(trouble: PalisadeError) -> None:
    """That nothing was done concerns the repetition only; the first attempt may still arrive."""
    cluster = Cluster(OutcomeUnknown("no response"), trouble, trouble, DONE, DONE)
    writes = SettledWrites("n1", cluster.send)
    for _ in range(3):
        with pytest.raises(OutcomeUnknown):
            await writes.write(A)
    await writes.write(B)
    assert cluster.numbers == [1, 1, 1, 1, 2]


@pytest.mark.parametrize("refusal", [LeaseNotFound("lease 5"), ReleasePending(7), Unavailable("no leader")])
async def test_refused_write_is_not_repeated(refusal: PalisadeError) -> None:
    cluster = Cluster(refusal, DONE)
    writes = SettledWrites("n1", cluster.send)
    with pytest.raises(type(refusal)):
        await writes.write(A)
    await writes.write(B)
    assert cluster.numbers == [1, 2]


@pytest.mark.parametrize("refusal", [LeaseNotFound("lease 5"), ReleasePending(7)])
async def test_refusal_of_the_repetition_settles_the_write(refusal: PalisadeError) -> None:
    cluster = Cluster(OutcomeUnknown("no response"), refusal, DONE)
    writes = SettledWrites("n1", cluster.send)
    with pytest.raises(OutcomeUnknown):
        await writes.write(A)
    assert await writes.write(B) == DONE
    assert cluster.numbers == [1, 1, 2]


async def test_random_schedules_with_delayed_attempts_announce_no_copy_that_is_gone() -> None:
    """An attempt at a cut-off node may arrive after its repetition, the withdrawal and the removal of the copy."""
    late = 0
    for seed in range(30):
        world = AnnouncingWorld(seed)
        world.delayed_share, world.lost_share = 0.4, 0.1
        await world.run()
        world.delayed_share = world.lost_share = 0.0
        late += len(world.delayed)
        while world.delayed:
            world.deliver_delayed()
            world.check_announced()
        await world.calm()
        for day in DAYS:
            name = str(segment(day))
            assigned = {node.name for node in world.nodes.values() if name in node.holder.wanted}
            assert world.brokers["x"].nodes_of(name) == assigned, (seed, day)
    assert late > 30


async def test_planted_writes_without_a_request_id_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    original = AnnouncingWorld.write
    monkeypatch.setattr(AnnouncingWorld, "write", lambda self, request, _=None: original(self, request))
    assert await planted(delayed_share=0.4)


async def test_planted_write_before_the_outcome_of_the_last_one_is_known_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def settle(self: SettledWrites) -> None: ...

    monkeypatch.setattr(SettledWrites, "_settle", settle)
    assert await planted(delayed_share=0.4)
