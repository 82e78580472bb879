"""Writes a history of the simulator or of the fault tests as the files that the job `audit` reads.

python -m tests.sim.recorded_export HISTORY.jsonl FOLDER

Time is the place in the total order of events, which is exact. Fenced reads of eventual keys promise nothing, and are
exported as local ones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from palisade.metastore.requests import Range
from palisade.pipeline.audit.key_history import NEVER
from palisade.wire.recorded_effects import Effects, digest_of, effects_of, possible
from palisade.wire.recorded_history import (
    SUFFIX,
    Commit,
    Note,
    Outcome,
    Promise,
    Recorded,
    RecordingHeader,
    packed_file,
)
from tests.sim.checkers.exactly_once import by_request
from tests.sim.checkers.linearizable import STRICT
from tests.sim.history import History
from tests.sim.history_file import load
from tests.sim.seen import FENCED, Call, Committed, Ok, Operation, Unknown
from tests.sim.seen import Path as Way

CLOCK = "simulation"


def export(history: History, folder: Path, strict: tuple[bytes, ...] = STRICT) -> None:
    """One file per client, one with the committed revisions."""
    by_client: dict[str, list[Recorded]] = {}
    for client, recorded in recorded_of(history, strict):
        by_client.setdefault(client, []).append(recorded)
    entries: dict[str, list[Any]] = {**by_client, "committed": [Note(feed=(1, NEVER)), *commits_of(history)]}
    for client, each in entries.items():
        content = b"".join(packed_file(RecordingHeader(client, CLOCK, 0, 0), [*each, Note(closed=True)]))
        (folder / f"{client.replace('/', '_')}-000001{SUFFIX}").write_bytes(content)


def commits_of(history: History) -> Iterator[Commit]:
    for event in history.events:
        if isinstance(event, Committed):
            changes = tuple((each.kv.key, each.delete, digest_of(each.kv.value)) for each in event.events.events)
            yield Commit(event.events.revision, changes)


def recorded_of(history: History, strict: tuple[bytes, ...] = STRICT) -> Iterator[tuple[str, Recorded]]:
    """(client, operation). The attempts of one request are one operation."""
    for attempts in by_request(history):
        if not isinstance(attempts[0].request, Call):
            yield attempts[0].client, _recorded(attempts, strict)
    for operation in history.operations():
        if operation.is_read:
            yield operation.client, _recorded([operation], strict)


def _recorded(attempts: list[Operation], strict: tuple[bytes, ...]) -> Recorded:
    first = attempts[0]
    answers = [each for each in attempts if isinstance(each.outcome, Ok) and each.ended is not None]
    effects, revision, completed, outcome = Effects(), 0, None, Outcome.UNKNOWN
    if answers:
        answer = min(answers, key=lambda each: each.ended or first.began)
        assert answer.ended is not None
        effects, revision = effects_of(first.request, answer.result), getattr(answer.result, "revision", 0)
        completed, outcome = answer.ended.order, Outcome.OK
    elif all(each.refused for each in attempts):
        outcome = Outcome.FAILED
    else:
        effects = possible(first.request)
        revision = max((each.outcome.revision for each in attempts if isinstance(each.outcome, Unknown)), default=0)
    promise = _promise(first, strict)
    if promise is Promise.PAST:
        revision = first.request.revision
    if first.path in FENCED:
        revision = 0
    kind, wall_ms = type(first.request).__name__.lower(), round(first.began.at_s * 1000)
    head = (first.number, first.began.order, completed, wall_ms, kind, promise.value, outcome.value, revision, "")
    return Recorded(*head, tuple(effects.wrote), tuple(effects.saw), tuple(effects.covered))


def _promise(operation: Operation, strict: tuple[bytes, ...]) -> Promise:
    request = operation.request
    if not isinstance(request, Range):
        return Promise.LINEARIZABLE
    if request.revision:
        return Promise.PAST
    if operation.path in FENCED:
        rows = operation.result.kvs if operation.result is not None else ()
        is_default = any(not kv.create_revision for kv in rows)
        is_strict = not request.range_end and request.key.startswith(strict)
        return Promise.FENCED if is_strict and not is_default else Promise.LOCAL
    return Promise.LOCAL if request.serializable or operation.path is Way.LOCAL else Promise.LINEARIZABLE


def main() -> None:
    source, folder = map(Path, sys.argv[1:3])
    folder.mkdir(parents=True, exist_ok=True)
    export(load(source.read_text(encoding="ascii").splitlines()), folder)


if __name__ == "__main__":
    main()
