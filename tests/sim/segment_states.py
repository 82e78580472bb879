"""The committed rows of segments, revision by revision, for checkers. Nothing of the product decodes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palisade.metastore.results import Event, RevisionEvents

ROOT = b"palisade/segments/"
RECORDS = ROOT + b"records/"
ANNOUNCED = ROOT + b"announced/"
ASSIGNED = ROOT + b"assigned/"
MANIFESTS = ROOT + b"manifests/"


@dataclass(frozen=True, slots=True)
class SegmentState:
    """All rows below ROOT, from `revision` on."""

    revision: int
    rows: Mapping[bytes, bytes]

    def record(self, name: str) -> dict[str, Any] | None:
        value = self.rows.get(RECORDS + name.encode())
        return None if value is None else json.loads(value)

    def announces(self, node: str, name: str) -> bool:
        return ANNOUNCED + f"{node}/{name}".encode() in self.rows

    def assigns(self, node: str, name: str) -> bool:
        return ASSIGNED + f"{node}/{name}".encode() in self.rows

    def nodes(self, name: str, among: Sequence[str]) -> list[str]:
        """Of these, the ones that announce it."""
        return [node for node in among if self.announces(node, name)]


class SegmentStates:
    def __init__(self) -> None:
        self._states = [SegmentState(0, {})]

    @property
    def latest(self) -> SegmentState:
        return self._states[-1]

    def commit(self, events: RevisionEvents) -> list[Event]:
        """The changes of segments in a revision."""
        changed = [event for event in events.events if event.kv.key.startswith(ROOT)]
        if changed:
            rows = dict(self.latest.rows)
            for event in changed:
                rows.pop(event.kv.key, None)
                if not event.delete:
                    rows[event.kv.key] = event.kv.value
            self._states.append(SegmentState(events.revision, rows))
        return changed

    @property
    def before(self) -> SegmentState:
        """The one that the latest has replaced."""
        return self._states[-2]

    def at(self, revision: int) -> SegmentState:
        return next(each for each in reversed(self._states) if each.revision <= revision)

    def since(self, revision: int) -> list[SegmentState]:
        """The state as of that revision, and all later ones."""
        return list(self.backwards(revision))[::-1]

    def backwards(self, revision: int = 0) -> Iterator[SegmentState]:
        """From the latest one to that as of `revision`."""
        for each in reversed(self._states):
            yield each
            if each.revision <= revision:
                return


def needed(record: Mapping[str, Any] | None) -> bool:
    """Whether queries may count on its copies."""
    return record is not None and bool(record["used"]) and record["replicas"] > 0


def grows(record: Mapping[str, Any] | None) -> bool:
    """Whether its ingester may be acknowledging rows."""
    return record is not None and needed(record) and bool(record.get("ingester")) and not record["digest"]
