"""A leader and its holders without a network or a schedule, for tests that control each step."""

from __future__ import annotations

from typing import Any

from palisade.fencing.holder_state import Holder
from palisade.fencing.messages import GrantMessage, Hello, HolderPhase, Release, StageMessage
from palisade.fencing.registry import registration_of
from palisade.fencing.release import Registration, Releases
from palisade.fencing.session import HolderSession
from palisade.fencing.timing import FenceTiming
from tests.support.fencing_parts import Leader, Process, Vault

TIMING = FenceTiming()
T_FENCE = TIMING.fence_s
T_PROCEED = TIMING.proceed_s()


class Pair:
    """One leader, and one holder per name; all clocks agree. `write` commits strict revisions by default."""

    def __init__(self, *names: str, lm: int = 0, now: float = 100.0) -> None:
        self.timing = TIMING
        self.now = now
        self.processes = {name: self.process(name) for name in names}
        self.registered = {name: Registration(name, f"{name}-v", T_FENCE, proceed_s=T_PROCEED) for name in names}
        self.top = self._elected(1, lm)

    def process(self, name: str, incarnation: int = 1, vault: str | None = None) -> Process:
        """Not connected, and not in `processes`."""
        process = Process(name, Vault(vault or f"{name}-v"))
        process.start(incarnation, self.timing, self.now)
        return process

    def _elected(self, term: int, lm: int) -> Leader:
        leader = Leader(term, Releases(self.timing))
        leader.releases.begin_term(term, self.now, self.registered.values(), lm)
        return leader

    @property
    def leader(self) -> Releases:
        return self.top.releases

    @property
    def sessions(self) -> dict[str, HolderSession]:
        return self.top.sessions

    @property
    def holders(self) -> dict[str, Holder]:
        return {name: process.running for name, process in self.processes.items()}

    def elect(self) -> None:
        """Another leader, which knows only what is replicated."""
        self.top = self._elected(self.top.term + 1, self.leader.lm)

    def restart(self, name: str, timing: FenceTiming) -> None:
        """With these times. It is not connected."""
        self.timing = timing
        self.processes[name] = self.process(name, 2)
        del self.sessions[name]

    def replace(self, name: str, vault: str) -> Hello:
        """Another process starts under this name, with another vault."""
        self.processes[name] = self.process(name, 2, vault)
        del self.sessions[name]
        return self.holders[name].hello(self.now, 0)

    def register(self, hello: Hello) -> None:
        registration = self.registered[hello.holder.node] = registration_of(hello)
        self.leader.registry.register(registration, self.now)

    # Messages

    def send(self, name: str, what: Any) -> None:
        """To the leader; all answers arrive, and theirs."""
        while what is not None:
            answer = self.top.receive(name, self.processes[name].id, what, self.now, quorum_lease=True)
            what = None if answer is None else self.receive(name, answer)

    def receive(self, name: str, what: Any) -> Any:
        """Returns the answer of the holder, which marks at once."""
        process = self.processes[name]
        answer = process.receive(what, self.now)
        return process.mark(self.now) if process.queue else answer

    def connect(self, name: str) -> Hello:
        """Hello and what follows: a holder that serves nothing promises."""
        hello = self.holders[name].hello(self.now, self.leader.lm)
        self.send(name, hello)
        return hello

    def join(self, name: str) -> None:
        self.leader.advance(self.now)
        self.send(name, self.holders[name].join(self.now, self.leader.lm))

    def stage(self, name: str, *, deliver: bool = True, acknowledge: bool = True) -> StageMessage | None:
        """What is due is staged, marked and acknowledged, or lost on the way there or back."""
        stage = self.top.next_stage(name)
        staged = self.receive(name, stage) if stage is not None and deliver else None
        if acknowledge:
            self.send(name, staged)
        return stage if isinstance(stage, StageMessage) else None

    def renew(self, name: str, *, quorum_lease: bool = True, deliver: bool = True) -> GrantMessage | None:
        """Requests a lease; the grant is lost unless `deliver`."""
        renew = self.holders[name].renew(self.now)
        grant = self.top.receive(name, self.processes[name].id, renew, self.now, quorum_lease=quorum_lease)
        if grant is not None and deliver:
            self.receive(name, grant)
        return grant if isinstance(grant, GrantMessage) else None

    def write(self, *, strict: bool = True) -> int:
        """One revision is committed."""
        revision = self.leader.lm + 1
        self.leader.committed(revision, self.now, (revision, revision) if strict else None)
        return revision

    def release(self) -> int | None:
        released = self.leader.advance(self.now)
        for name in self.processes:
            if self.leader.rr is not None:
                self.receive(name, Release(self.top.term, self.leader.rr))
        return released

    def serve(self, *names: str) -> None:
        """From any state to ACTIVE."""
        for name in names or self.processes:
            if name not in self.sessions:
                self.connect(name)
        for name in names or self.processes:
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
