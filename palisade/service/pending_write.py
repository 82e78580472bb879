"""A write from its proposal to its response, as one object: proposed, applied, released, answered.

A write to a strict region is answered when it is released, or with ReleasePending at its deadline. Whether it touches
one is decided when it is proposed, and again when it is applied if the regions may have changed meanwhile
(`StrictResponses.knows`). The deadline counts from the proposal.
"""

from __future__ import annotations

import enum
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from palisade.base.metrics import Metrics
from palisade.metastore.command_codec import decode_result
from palisade.metastore.requests import Command, RequestId
from palisade.raftgroup.errors import RaftError
from palisade.raftgroup.proposals import Applied, Proposal
from palisade.service.retry_check import check_answers
from palisade.service.strict_commands import Prefixes, is_strict
from palisade.wire.fencing_errors import ReleaseError

if TYPE_CHECKING:
    from palisade.service.strict_responses import StrictResponses

Outcome = Applied | RaftError | ReleaseError
"""Of a write. ReleaseError: applied, and not released in time."""
Reply = Callable[[Any], None]
"""Called once with the result (`metastore.results`) or an exception."""


class WriteState(enum.Enum):
    """UNSURE: applied by the leader; whether it is strict is decided once this node has applied it. HELD: waits for its
    release."""

    PROPOSED = enum.auto()
    UNSURE = enum.auto()
    HELD = enum.auto()


class HeldProposal(Proposal):
    """`strict`: None without fencing. `all_strict`: every part of it waits for its release. `prefixes`: the strict ones
    when that was decided. `until`: by the clock of `strict`."""

    __slots__ = ("all_strict", "applied", "prefixes", "state", "strict", "until")

    def __init__(
        self, commands: Sequence[bytes], timeout_s: float, strict: StrictResponses | None, weight: int | None = None
    ) -> None:
        super().__init__(commands, timeout_s, weight)
        self.state = WriteState.PROPOSED
        self.applied: Applied | None = None
        self.all_strict = False
        self.strict = strict
        self.prefixes: Prefixes = ()
        self.until = 0.0
        if strict is not None:
            self.prefixes = strict.prefixes
            self.until = strict.released.now() + timeout_s

    def ended(self, outcome: Applied | RaftError) -> None:
        strict = self.strict
        if not isinstance(outcome, Applied) or strict is None:
            self.answer(outcome)
            return
        self.applied = outcome
        if self.all_strict or strict.knows(self.prefixes, outcome):
            self.release(outcome, strict)
        else:
            self.state = WriteState.UNSURE
            strict.when_applied(outcome, self.until, self.reached)

    def reached(self, in_time: bool) -> None:
        """Applied by this node, or released. Without `in_time` the deadline has passed."""
        applied, strict = self.applied, self.strict
        if applied is None or strict is None:
            return
        if not in_time:
            self.late(applied, strict)
        elif self.state is WriteState.UNSURE:
            self.decide_again(strict.prefixes)
            self.release(applied, strict)
        else:
            self.answer(applied)

    def release(self, applied: Applied, strict: StrictResponses) -> None:
        """Answer the parts that touch no strict region; hold the rest."""
        if self.all_strict:
            self.state = WriteState.HELD
            strict.when_released(applied, self.until, self.reached)
        else:
            self.answer(applied)

    def late(self, applied: Applied, strict: StrictResponses) -> None:
        self.answer(strict.late(applied))

    @abstractmethod
    def decide_again(self, prefixes: Prefixes) -> None:
        """The write is applied by this node."""

    @abstractmethod
    def answer(self, outcome: Outcome) -> None:
        """Called once for each part."""


class PendingWrite(HeldProposal):
    """One request."""

    __slots__ = ("_began", "_metrics", "_reply", "request", "request_id")

    def __init__(
        self,
        command: bytes,
        request: Command,
        request_id: RequestId | None,
        reply: Reply,
        timeout_s: float,
        strict: StrictResponses | None,
        metrics: Metrics,
    ) -> None:
        super().__init__((command,), timeout_s, strict)
        self.request, self.request_id = request, request_id
        self._reply, self._metrics, self._began = reply, metrics, metrics.now()

    def decide_again(self, prefixes: Prefixes) -> None:
        self.all_strict = is_strict(self.request, prefixes)

    def answer(self, outcome: Outcome) -> None:
        metrics = self._metrics
        metrics.write_latency.observe(metrics.now() - self._began)
        if isinstance(outcome, Applied):
            metrics.applied += 1
            try:
                result = decode_result(outcome.results[0])
                if self.request_id is not None:
                    check_answers(result, self.request, self.request_id)
            except Exception as error:
                result = error
            self._reply(result)
            return
        if isinstance(outcome, RaftError):
            metrics.failed(outcome)
        self._reply(outcome)
