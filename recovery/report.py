"""The report of a recovery: shown on the command line, in the HTTP API and in the metrics (R12). Pure but for counting.

`RecoveryRecorder` collects while a recovery runs; `RecoveryReport` is the result; `as_dict` is its shape in the API.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from palisade.recovery.decision import Case


class RecoveryPhase(enum.Enum):
    """In their order of occurrence. The names are stable."""

    ASK = "ask"
    SNAPSHOT = "snapshot"
    EVICTION = "eviction"
    START = "start"
    NOTIFY = "notify"
    REPLAY = "replay"


class RecoveryOutcome(enum.Enum):
    RUNNING = "running"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Counts:
    kept: int = 0
    evicted: int = 0
    fetched: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True)
class RecoveryProgress:
    """Of the present phase: `done` of `total` in `unit`s, in `seconds` since it began.

    `total` is 0 if unknown. For the keys of a snapshot it is an estimate: the keys of the cluster for an empty vault;
    otherwise the number of missed revisions, each of which may have changed more than one key.
    """

    phase: RecoveryPhase
    done: int = 0
    total: int = 0
    unit: str = ""
    seconds: float = 0.0

    @property
    def per_s(self) -> float | None:
        """None while nothing is counted."""
        return self.done / self.seconds if self.done and self.seconds > 0 else None

    @property
    def remaining_s(self) -> float | None:
        """The remaining time at the speed so far; None if unknown."""
        if self.per_s is None or not self.total:
            return None
        return max(0, self.total - self.done) / self.per_s

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "phase": self.phase.value,
            "done": self.done,
            "total": self.total or None,
            "unit": self.unit,
            "seconds": round(self.seconds, 6),
            "per_s": rounded(self.per_s),
            "remaining_s": rounded(self.remaining_s),
        }


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """`case` and `reason` are those of the last decision; `first_case` is that of the first one.

    `keys`: entries of the vault that a difference kept, evicted, fetched. `resources`: the same for the node's other
    local data, and what was missing. `difference` is the effective catch-up difference at the end. Times in seconds,
    sizes in bytes.
    """

    node: str = ""
    outcome: RecoveryOutcome = RecoveryOutcome.RUNNING
    case: Case | None = None
    first_case: Case | None = None
    reason: str = ""
    lv_before: int = 0
    lv: int = 0
    lm: int = 0
    mm: int = 0
    revisions_replayed: int = 0
    bytes_fetched: int = 0
    buckets_differing: int = 0
    keys: Counts = Counts()
    resources: Counts = Counts()
    snapshots: int = 0
    difference: int = 0
    pinned: bool = False
    waits: int = 0
    """How often the metadata store could not be reached."""
    seconds: float = 0.0
    phases: tuple[tuple[RecoveryPhase, float], ...] = ()
    error: str = ""

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            **asdict(self),
            "outcome": self.outcome.value,
            "case": self.case.value if self.case else None,
            "first_case": self.first_case.value if self.first_case else None,
            "phases": {phase.value: round(seconds, 6) for phase, seconds in self.phases},
            "seconds": round(self.seconds, 6),
        }


class RecoveryRecorder:
    """`now` in seconds; `on_progress` is called at every step, so it must be quick."""

    def __init__(
        self, node: str, now: Callable[[], float], on_progress: Callable[[RecoveryProgress], None] | None = None
    ) -> None:
        self.report = RecoveryReport(node=node)
        self._progress = RecoveryProgress(RecoveryPhase.ASK)
        self._now = now
        self._began = self._phase_began = now()
        self._on_progress = on_progress
        self._times: dict[RecoveryPhase, float] = {}

    @property
    def progress(self) -> RecoveryProgress:
        """The present progress."""
        return replace(self._progress, seconds=self._now() - self._phase_began)

    def report_now(self) -> RecoveryReport:
        """The report of a recovery that may be in progress: with the time until now, including its present phase."""
        if self.report.outcome is not RecoveryOutcome.RUNNING:
            return self.report
        times = dict(self._times)
        present = self._progress.phase
        times[present] = times.get(present, 0.0) + self._now() - self._phase_began
        return replace(self.report, seconds=self._now() - self._began, phases=in_order(times))

    def note(self, **values: object) -> None:
        self.report = replace(self.report, **values)  # type: ignore[arg-type]

    def add(self, **counts: int) -> None:
        """Add to the numbers of the report."""
        self.report = replace(
            self.report,
            **{name: getattr(self.report, name) + count for name, count in counts.items()},
        )

    def add_counts(self, name: str, counts: Counts) -> None:
        """Add to `keys` or `resources`; the kept and missing numbers are those of the last call."""
        so_far: Counts = getattr(self.report, name)
        total = Counts(counts.kept, so_far.evicted + counts.evicted, so_far.fetched + counts.fetched, counts.missing)
        self.note(**{name: total})

    def step(self, phase: RecoveryPhase, done: int, total: int, unit: str) -> None:
        self._progress = RecoveryProgress(phase, done, total, unit)
        self._report_progress()

    def waited(self) -> None:
        """A wait for the metadata store, without progress; reported as well."""
        self.add(waits=1)
        self._report_progress()

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.progress)

    @contextmanager
    def phase(self, phase: RecoveryPhase) -> Iterator[None]:
        """Its time counts, also if it ends with an error. Phases do not nest."""
        self._phase_began = self._now()
        self.step(phase, 0, 0, "")
        try:
            yield
        finally:
            now = self._now()
            self._times[phase] = self._times.get(phase, 0.0) + now - self._phase_began
            self._phase_began = now
            self.note(phases=in_order(self._times))

    def end(self, outcome: RecoveryOutcome, error: BaseException | None = None) -> RecoveryReport:
        said = f"{type(error).__name__}: {error}" if error is not None else ""
        self.note(outcome=outcome, seconds=self._now() - self._began, error=said)
        return self.report


def in_order(times: Mapping[RecoveryPhase, float]) -> tuple[tuple[RecoveryPhase, float], ...]:
    return tuple((phase, times[phase]) for phase in RecoveryPhase if phase in times)
