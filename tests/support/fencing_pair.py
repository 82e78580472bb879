"""A leader and its holders without a network between them, for tests that control each step."""

from __future__ import annotations

from collections.abc import Iterable

from palisade.fencing.holder_state import Holder
from palisade.fencing.messages import (
    GrantMessage,
    Hello,
    HolderId,
    HolderPhase,
    Release,
    Row,
    StagedMessage,
    StageMessage,
    WelcomeMessage,
)
from palisade.fencing.registry import registration_of
from palisade.fencing.release import Registration, Releases
from palisade.fencing.session import HolderSession
from palisade.fencing.stage_chain import Mark
from palisade.fencing.timing import FenceTiming

TIMING = FenceTiming()
T_FENCE = TIMING.fence_s
T_PROCEED = TIMING.proceed_s()


class Pair:
    """One leader, and one holder per name; all clocks agree. Revisions are strict unless `eventual` is set."""

    def __init__(
        self, *names: str, lm: int = 0, now: float = 100.0, term: int = 1, timing: FenceTiming = TIMING
    ) -> None:
        self.timing = timing
        self.now = now
        self.term = term
        self.leader = Releases(timing)
        self.holders = {name: self.process(name, 1) for name in names}
        self.registered = {
            name: Registration(name, f"{name}-v", timing.fence_s, proceed_s=timing.proceed_s()) for name in names
        }
        self.sessions: dict[str, HolderSession] = {}
        self.leader.begin_term(term, now, self.registered.values(), lm)

    def process(self, name: str, incarnation: int, vault: str | None = None) -> Holder:
        return Holder(HolderId(name, vault or f"{name}-v", incarnation), self.timing, self.now)

    def elect(self) -> None:
        """Another leader, which knows only what is replicated."""
        self.term += 1
        lm = self.leader.lm
        self.leader = Releases(self.timing)
        self.leader.begin_term(self.term, self.now, self.registered.values(), lm)
        self.sessions.clear()

    def connect(self, name: str, lv: int | None = None) -> Hello:
        """Hello and what follows: a holder that serves nothing promises."""
        holder = self.holders[name]
        hello = holder.hello(self.now, self.leader.lm if lv is None else lv)
        self.leader.hello(hello, self.now)
        self.sessions[name] = HolderSession(hello)
        fenced = holder.on_welcome(self.welcome(), self.now)
        if fenced is not None:
            self.leader.fenced(holder.me, fenced, self.now)
        return hello

    def welcome(self) -> WelcomeMessage:
        return WelcomeMessage(self.leader.term, self.leader.lm, self.leader.rr)

    def join(self, name: str) -> None:
        self.leader.advance(self.now)
        self.sessions[name].on_join(self.holders[name].join(self.now, self.leader.lm))

    def stage(self, name: str, *, deliver: bool = True, acknowledge: bool = True) -> StageMessage | None:
        """What is due is staged, marked and acknowledged, or lost on the way there or back."""
        lm = self.leader.lm
        stage = self.sessions[name].next_stage(
            self.leader.term, lm, self.leader.rr, lambda after: rows(range(after + 1, lm + 1))
        )
        if not isinstance(stage, StageMessage):
            return None
        if deliver:
            taken = self.holders[name].on_stage(stage, self.now)
            if isinstance(taken, Mark):
                self.mark(name, taken)
            staged = self.holders[name].marked(taken, self.now) if isinstance(taken, Mark) else taken
            if acknowledge and isinstance(staged, StagedMessage):
                self.leader.staged(self.holders[name].me, staged.upto, self.now)
        return stage

    def mark(self, name: str, mark: Mark) -> None:
        """The rows of a stage become pending in the vault of that holder, if there is one."""

    def renew(self, name: str, *, quorum_lease: bool = True, deliver: bool = True) -> GrantMessage | None:
        """Requests a lease; the grant is lost unless `deliver`."""
        renew = self.holders[name].renew(self.now)
        granted = self.leader.renew(self.holders[name].me, renew, self.now, quorum_lease=quorum_lease)
        if not isinstance(granted, GrantMessage):
            return None
        if deliver:
            self.holders[name].on_grant(granted, self.now)
        return granted

    def serve(self, *names: str) -> None:
        """From any state to ACTIVE."""
        for name in names or tuple(self.holders):
            if name not in self.sessions:
                self.connect(name)
        for name in names or tuple(self.holders):
            holder = self.holders[name]
            if holder.wants_join:
                self.join(name)
            self.stage(name)
            if holder.wants_recovery(self.now):
                holder.begin_recovery(self.now)
                holder.recovered(self.now)
            self.now += 1e-3
            self.renew(name)
            lacks = holder.activate(self.now, self.leader.lm)
            assert holder.state is HolderPhase.ACTIVE, lacks

    def write(self, *, strict: bool = True) -> int:
        """One revision is committed."""
        revision = self.leader.lm + 1
        self.leader.committed(revision, self.now, (revision, revision) if strict else None)
        return revision

    def release(self, names: Iterable[str] = ()) -> int | None:
        released = self.leader.advance(self.now)
        for name in names or self.holders:
            self.deliver_release(name)
        return released

    def deliver_release(self, name: str) -> None:
        if self.leader.rr is not None:
            self.holders[name].on_release(Release(self.leader.term, self.leader.rr), self.now)

    def replace(self, name: str, vault: str) -> Hello:
        """Another process starts under this name, with another vault."""
        self.holders[name] = self.process(name, 2, vault)
        hello = self.holders[name].hello(self.now, 0)
        self.sessions.pop(name, None)
        return hello

    def register(self, hello: Hello) -> None:
        registration = registration_of(hello)
        self.registered[registration.node] = registration
        self.leader.registry.register(registration, self.now)


def rows(revisions: Iterable[int]) -> tuple[Row, ...]:
    return tuple((revision, b"k%d" % revision, b"v") for revision in revisions)
