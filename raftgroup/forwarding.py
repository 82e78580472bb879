"""Forwards proposals of a follower to the leader in batches, and returns their outcomes.

The leader reports which proposals it has applied, and which it refused before they were in any log; the latter return
to the sender's queue. If the connection breaks in between, the outcome is reported as unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palisade.raftgroup.errors import RaftError, Unavailable
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import Clock, Random
from palisade.raftgroup.proposals import Applied, CallbackProposal, Proposal, Proposals, end_late
from palisade.raftgroup.request_ids import first_number

_APPLIED, _REFUSED, _UNKNOWN = 0, 1, 2
_PATIENCE_S = 5.0


class Forwarding:
    """Both sides: proposals that this member has forwarded, and proposals forwarded to it."""

    def __init__(
        self, proposals: Proposals, clock: Clock, send: Callable[[str, int, Any], bool], random: Random
    ) -> None:
        self._proposals = proposals
        self._clock = clock
        self._send = send
        self._number = first_number(random)
        self._underway: dict[int, tuple[str, Proposal]] = {}
        self._answers: dict[str, list[Any]] = {}

    # The follower's side.

    def forward(self, leader: str, batch: list[Proposal]) -> None:
        packed: list[Any] = []
        for proposal in batch:
            self._number += 1
            self._underway[self._number] = (leader, proposal)
            packed.append([self._number, list(proposal.commands), proposal.weight])
        if packed and not self._send(leader, MessageKind.FORWARD, packed):
            for number, _, _ in packed:
                self._underway.pop(number)
            self._proposals.put_back(batch)

    def answered(self, member: str, answers: list[Any]) -> None:
        refused: list[Proposal] = []
        for number, ended, index, term, results in answers:
            forwarded = self._underway.get(number)
            if forwarded is None or forwarded[0] != member:
                continue
            proposal = self._underway.pop(number)[1]
            if ended == _APPLIED and len(results) == len(proposal.commands):
                proposal.end(Applied(index, term, results))
            elif ended == _REFUSED:
                refused.append(proposal)
            else:
                end_late(proposal)
        self._proposals.put_back(refused)

    def lost(self, member: str) -> None:
        """The connection to `member` broke: proposals forwarded to it may be applied or not."""
        for number, (leader, proposal) in list(self._underway.items()):
            if leader == member:
                del self._underway[number]
                end_late(proposal)

    # The leader's side.

    def take(self, member: str, packed: list[Any], *, leads: bool) -> None:
        now = self._clock.now()
        for number, commands, weight in packed:
            if leads and all(type(command) is bytes for command in commands):
                done = self._done(member, number)
                self._proposals.add(CallbackProposal(commands, done, _PATIENCE_S, weight), now)
            else:
                self._answer(member, [number, _REFUSED, 0, 0, []])

    def _done(self, member: str, number: int) -> Callable[[Applied | RaftError], None]:
        def done(outcome: Applied | RaftError) -> None:
            if isinstance(outcome, Applied):
                self._answer(member, [number, _APPLIED, outcome.index, outcome.term, outcome.results])
            else:
                ended = _REFUSED if isinstance(outcome, Unavailable) else _UNKNOWN
                self._answer(member, [number, ended, 0, 0, []])

        return done

    def _answer(self, member: str, answer: list[Any]) -> None:
        self._answers.setdefault(member, []).append(answer)

    def send_answers(self) -> None:
        """All answers of a turn are sent together."""
        if self._answers:
            answers, self._answers = self._answers, {}
            for member, ends in answers.items():
                self._send(member, MessageKind.FORWARD_REPLY, ends)
