"""Many writes that arrived in one frame: one proposal, one result for each write.

Writes that touch no strict region get their results when they are applied. The strict ones wait together until the last
of them is released; if that is not in time, each gets a result according to its state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from palisade.base.metrics import Metrics
from palisade.metastore.command_codec import decode_fields, unpack_command
from palisade.metastore.put_series import results_in
from palisade.raftgroup.errors import RaftError
from palisade.raftgroup.proposals import Applied
from palisade.service.pending_write import HeldProposal, Outcome, StrictResponses, WriteState
from palisade.service.strict_commands import Prefixes, fields_are_strict
from palisade.service.write_checks import CheckedWrite


class FrameReply(Protocol):
    """Each write of a frame is answered once, by one of these calls."""

    def on_refusal(self, writes: Sequence[CheckedWrite], error: Exception) -> None:
        """The writes were not proposed."""
        ...

    def on_results(self, writes: Sequence[CheckedWrite], results: Sequence[Any]) -> None:
        """One result for each write, encoded by `metastore.command_codec`."""
        ...

    def on_failure(self, writes: Sequence[CheckedWrite], error: Exception) -> None:
        """The writes were proposed, with this outcome."""
        ...


class PendingFrame(HeldProposal):
    __slots__ = ("_held", "_metrics", "_reply", "writes")

    def __init__(
        self,
        writes: Sequence[CheckedWrite],
        reply: FrameReply,
        timeout_s: float,
        strict: StrictResponses | None,
        metrics: Metrics,
    ) -> None:
        commands, puts = [write.command for write in writes], sum([write.puts for write in writes])
        all_strict = strict is not None and all(write.strict for write in writes)
        super().__init__(commands, timeout_s, strict, all_strict, puts)
        self.writes = writes
        self._held: Sequence[int] = ()
        """Positions of the writes that wait for their release."""
        self._reply, self._metrics = reply, metrics

    def decide_again(self, prefixes: Prefixes) -> None:
        self.writes = [_decided(write, prefixes) for write in self.writes]

    def release(self, applied: Applied, strict: StrictResponses) -> None:
        self._held = [place for place, write in enumerate(self.writes) if write.strict]
        if not self._held:
            self.answer(applied)
            return
        self.state = WriteState.HELD
        if len(self._held) < len(self.writes):
            self._send(applied, [place for place, write in enumerate(self.writes) if not write.strict])
        held = applied._replace(results=[applied.results[place] for place in self._held])
        strict.when_released(held, self.until, self.reached)

    def late(self, applied: Applied, strict: StrictResponses) -> None:
        """A series is answered put by put: each put has its own revision, and a refused one waits for no release."""
        places = self._held if self.state is WriteState.HELD else range(len(self.writes))
        for place in places:
            write, result = self.writes[place], applied.results[place]
            for number, each in enumerate(results_in(result) or [result], write.number):
                single = [write._replace(number=number, puts=1)]
                self._send_some(single, strict.outcome_at_deadline(applied._replace(results=[each])))

    def answer(self, outcome: Outcome) -> None:
        if self._held and isinstance(outcome, Applied):
            self._send(outcome, self._held)
        else:
            self._send_some(self.writes, outcome)

    def _send(self, applied: Applied, places: Sequence[int]) -> None:
        results = [applied.results[place] for place in places]
        self._send_some([self.writes[place] for place in places], applied._replace(results=results))

    def _send_some(self, writes: Sequence[CheckedWrite], outcome: Outcome) -> None:
        if isinstance(outcome, Applied):
            self._metrics.applied += sum([write.puts for write in writes])
            self._reply.on_results(writes, outcome.results)
            return
        if isinstance(outcome, RaftError):
            self._metrics.failed(outcome)
        self._reply.on_failure(writes, outcome)


def _decided(write: CheckedWrite, prefixes: Prefixes) -> CheckedWrite:
    if write.strict:
        return write
    strict = fields_are_strict(unpack_command(write.command), prefixes, lambda fields: decode_fields(fields)[0])
    return write._replace(strict=strict)
