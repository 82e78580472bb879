"""The SWIM state machine of one node: messages and ticks in, messages and changes out. Pure.

Guarantees (Das, Gupta, Motivala 2002, "SWIM"), and why they hold:
- Every other node detects a stopped node in bounded time. Each node pings all others in turn (`roster.py`). A node that
  answers neither directly nor through `proxies` others is suspected, and declared dead unless it refutes in time.
- A lost message does not remove a live node. The suspect refutes the suspicion by raising its incarnation, and every
  message to a suspect carries the suspicion (Lifeguard, "buddy system").
- A pause of this node does not count against others. Its clock advances by at most a period per step (`_advance`), so
  it reads the answers waiting in its socket before it suspects a node.
- The load per node does not grow with the cluster: one ping a period, rumours on existing messages, and one number to
  compare rosters that are equal (`RosterDigest`).
- Rosters converge once nothing changes. Records are totally ordered (`record.py`). Rumours spread most of them; every
  `sync_periods`, comparing digests with a random node spreads the rest. Every second time the peer is a dead node or a
  seed, so that the halves of a split cluster find each other again.
- Of two processes with one name, the later one learns of the other from gossip, pings it, and stops if it answers.

The caller owns socket, clock and randomness. It calls `tick` at `due` at the latest, sends the messages in `outbox`,
and reads `changes`. Times are seconds of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from palisade.topology.swim.messages import Ack, Message, Ping, PingRequest, RosterDigest, RosterMessage
from palisade.topology.swim.record import Record, SwimIdentity, SwimState
from palisade.topology.swim.roster import RandomSource
from palisade.topology.swim.roster import Roster as Known
from palisade.topology.swim.rumours import RumourBook
from palisade.topology.swim.timing import SwimTiming

LEAVE_TO = 5
"""Number of nodes that receive the departure directly; gossip spreads it to the others."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change in this node's physical topology: the record `now` has replaced `before`."""

    before: Record | None
    now: Record


@dataclass(slots=True)
class _Probe:
    """The one node that is pinged in this period."""

    target: Record
    number: int
    relay_at: float | None


@dataclass(frozen=True, slots=True)
class _Relay:
    """A ping on behalf of another node: its address, the number of its request, and when the relay expires."""

    address: str
    number: int
    target: SwimIdentity
    until: float


class Swim:
    """`size_of`: bytes of a record on the wire. `rumour_bytes_max`: space for records in one message."""

    def __init__(
        self,
        own: Record,
        seeds: Iterable[str],
        chance: RandomSource,
        now: float,
        *,
        size_of: Callable[[Record], int],
        rumour_bytes_max: int,
        timing: SwimTiming | None = None,
    ) -> None:
        self.timing = timing or SwimTiming()
        self.own = own
        self.duplicate: str | None = None
        """The error text with which this node must stop, because a live process has its name; else None."""
        self.outbox: list[tuple[str, Message]] = []
        self.changes: list[Change] = []
        self._seeds = tuple(seed for seed in seeds if seed != own.address)
        self._found: tuple[str, ...] = ()
        self._chance = chance
        self._rumour_bytes_max = rumour_bytes_max
        self._known = Known(own.name, chance)
        self._known.put(own)
        self._rumours = RumourBook(size_of)
        self._rumours.add(own)
        self._size_of = size_of
        self._seen = now
        self._clock = 0.0
        self._number = 0
        self._period_at = 0.0
        self._periods = 0
        self._probe: _Probe | None = None
        self._relays: dict[int, _Relay] = {}
        self._deadlines: dict[str, float] = {}
        """For suspects: when they are declared dead. For dead nodes and those that left: when they are forgotten."""
        self._contested: Record | None = None
        self._contest_number = 0

    # Queries.

    def live(self) -> list[Record]:
        """The physical topology, including this node."""
        return self._known.live()

    def records(self) -> list[Record]:
        """All known records, including those of nodes that are gone."""
        return list(self._known)

    def get(self, name: str) -> Record | None:
        return self._known.get(name)

    @property
    def contested(self) -> Record | None:
        """The record of another process with this node's name; None once the conflict is resolved."""
        return self._contested

    @property
    def seeds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._seeds, *self._found)))

    def add_seeds(self, addresses: Iterable[str]) -> None:
        """Add addresses of nodes to contact."""
        known = {*self._seeds, self.own.address}
        self._seeds += tuple(dict.fromkeys(each for each in addresses if each not in known))

    def replace_found(self, addresses: Iterable[str]) -> None:
        """Addresses of nodes to contact besides the seeds, instead of those that were found before."""
        self._found = tuple(each for each in addresses if each != self.own.address)

    # Time.

    def tick(self, now: float) -> float:
        """Perform the due actions. Returns the time of the next tick."""
        self._advance(now)
        if self._probe is not None and self._probe.relay_at is not None and self._clock >= self._probe.relay_at:
            self._ask_proxies(self._probe)
        if self._clock >= self._period_at:
            self._period()
        self._expire()
        return now + max(0.0, self._next_due() - self._clock)

    def _advance(self, now: float) -> None:
        """Advance the node's clock by at most a period: a longer step means that this process was paused."""
        self._clock += min(max(0.0, now - self._seen), self.timing.period_s)
        self._seen = max(self._seen, now)

    def _next_due(self) -> float:
        due = [self._period_at, *self._deadlines.values()]
        if self._probe is not None and self._probe.relay_at is not None:
            due.append(self._probe.relay_at)
        return min(due)

    def _period(self) -> None:
        self._period_at = self._clock + self.timing.period_s
        self._periods += 1
        self._relays = {number: each for number, each in self._relays.items() if each.until > self._clock}
        probe, self._probe = self._probe, None
        if probe is not None:
            self._suspect(probe.target)
        if self.own.state is SwimState.LEFT:
            return
        self._ask_next()
        self._ask_contested()
        alone = self._known.live_count == 1
        if alone or self._periods % self.timing.sync_periods == 0:
            self._synchronize(alone)

    def _expire(self) -> None:
        for name in [each for each, deadline in self._deadlines.items() if deadline <= self._clock]:
            del self._deadlines[name]
            record = self._known.get(name)
            if record is None:
                continue
            if record.state is SwimState.SUSPECT:
                self._accept(record.become(SwimState.DEAD))
            elif not record.is_live:
                self._known.forget(name)

    # The failure detector.

    def _ask_next(self) -> None:
        target = self._known.next_turn()
        if target is not None:
            self._probe = _Probe(target, self._next_number(), self._clock + self.timing.ack_s)
            self._send(target.address, Ping(self.own.identity, self._probe.number, target.identity), target)

    def _ask_proxies(self, probe: _Probe) -> None:
        probe.relay_at = None
        target = probe.target
        for proxy in self._known.sample(self.timing.proxies, target.name):
            request = PingRequest(self.own.identity, probe.number, target.identity, target.address)
            self._send(proxy.address, request, proxy)

    def _suspect(self, target: Record) -> None:
        """Suspect it, unless a newer record of it has arrived since the ping."""
        record = self._known.get(target.name)
        if record is not None and record.order == target.become(SwimState.ALIVE).order:
            self._accept(record.become(SwimState.SUSPECT))

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    # Messages.

    def receive(self, message: Message, address: str, now: float) -> None:
        """`address`: the sender's, which receives any answer."""
        self._advance(now)
        for rumour in message.rumours:
            self._merge(rumour)
        if isinstance(message, Ping):
            answer = Ack(self.own.identity, message.number, self.own.identity)
            self._send(address, answer, self._known.get(message.source.name))
        elif isinstance(message, PingRequest):
            self._relay(message, address)
        elif isinstance(message, Ack):
            self._acknowledged(message)
        elif isinstance(message, RosterDigest):
            if message.digest != self._known.digest():
                self._send_roster(message.source, address, answer=True)
        else:
            self.settle()
            self._correct(message, address)
            if message.answer:
                self._send_roster(message.source, address, answer=False)

    def _relay(self, message: PingRequest, address: str) -> None:
        number = self._next_number()
        until = self._clock + self.timing.period_s
        self._relays[number] = _Relay(address, message.number, message.target, until)
        self._send(
            message.address,
            Ping(self.own.identity, number, message.target),
            self._known.get(message.target.name),
        )

    def _acknowledged(self, message: Ack) -> None:
        probe, contested = self._probe, self._contested
        relay = self._relays.get(message.number)
        if probe is not None and message.number == probe.number and message.witness == probe.target.identity:
            self._probe = None
        elif relay is not None and message.witness == relay.target:
            del self._relays[message.number]
            self._send(relay.address, Ack(self.own.identity, relay.number, message.witness), None)
        elif contested is not None and message.number == self._contest_number and message.witness == contested.identity:
            self.duplicate = (
                f"the name {self.own.name} is in use by a running node at {contested.address}: stop that node, or "
                "start this one with another --id"
            )

    # Records.

    def _merge(self, record: Record) -> None:
        if record.name == self.own.name:
            self._merge_own(record)
            return
        known = self._known.get(record.name)
        if known is not None and known.is_live and record.state is SwimState.DEAD:
            # A node that was cut off declares all others dead. Treat that as a suspicion, which they can refute.
            record = record.become(SwimState.SUSPECT)
        if known is None or record.supersedes(known):
            self._accept(record)

    def _accept(self, record: Record) -> None:
        before = self._known.get(record.name)
        self._known.put(record)
        self._rumours.add(record)
        self._deadlines.pop(record.name, None)
        if record.state is SwimState.SUSPECT:
            self._deadlines[record.name] = self._clock + self.timing.suspicion_s(self._known.live_count)
        elif not record.is_live:
            self._deadlines[record.name] = self._clock + self.timing.forget_s
        asked = self._probe.target if self._probe is not None else None
        if asked is not None and asked.name == record.name and asked.instance != record.instance:
            self._probe = None
        if record.is_live or before is not None:
            self.changes.append(Change(before, record))

    # This node's own record.

    def _merge_own(self, record: Record) -> None:
        if record.instance == self.own.instance:
            if record.order > self.own.order and self.own.state is not SwimState.LEFT:
                self._raise_above(record)
        elif not record.supersedes(self.own):
            return
        elif not record.is_live or record.address == self.own.address:
            self._contested = None
            self._raise_above(record)
        else:
            self._contested = record

    def _raise_above(self, record: Record) -> None:
        """Supersede a record of this node or of an earlier process at its address. Only one process can listen at an
        address, so another instance there has ended."""
        self._announce(replace(self.own, incarnation=record.incarnation + 1))

    def _announce(self, own: Record) -> None:
        before, self.own = self.own, own
        self._known.put(own)
        self._rumours.add(own)
        self.changes.append(Change(before, own))

    def settle(self) -> None:
        """Take incarnation 1. A node starts with 0, and settles when a roster without a conflict has arrived or the
        cluster has admitted it. Thus a later process with the same name never supersedes the present one."""
        if self.own.incarnation == 0 and self._contested is None:
            self._raise_above(self.own)

    def _ask_contested(self) -> None:
        if self._contested is not None:
            self._contest_number = self._next_number()
            ping = Ping(self.own.identity, self._contest_number, self._contested.identity)
            self._send(self._contested.address, ping, None)

    def retag(self, tags: tuple[tuple[str, str], ...]) -> None:
        """Change this node's tags and announce them."""
        if tags != self.own.tags and self.own.state is not SwimState.LEFT:
            self._announce(replace(self.own, tags=tags, incarnation=self.own.incarnation + 1))

    def leave(self) -> None:
        """Announce the departure; nothing is refuted any more. The caller sends the outbox, then stops."""
        if self.own.state is SwimState.LEFT:
            return
        self._announce(self.own.become(SwimState.LEFT))
        for record in self._known.sample(LEAVE_TO):
            self._send(record.address, Ping(self.own.identity, self._next_number(), record.identity), self.own)

    # Comparing rosters.

    def _synchronize(self, alone: bool) -> None:
        """Send a digest: alternately to a live node, and to a dead node or seed that a split may have separated. A node
        that is alone sends it to every seed."""
        digest = RosterDigest(self.own.identity, self._known.digest())
        if alone:
            for seed in self.seeds:
                self._send(seed, digest, None)
        if (self._periods // self.timing.sync_periods) % 2 == 0:
            for record in self._known.sample(1):
                self._send(record.address, digest, record)
            return
        known = {record.address for record in self._known if record.is_live}
        gone = [record.address for record in self._known if record.state is SwimState.DEAD]
        candidates = sorted({*gone, *self.seeds} - known)
        if candidates and not alone:
            address = candidates[self._chance.randrange(len(candidates))]
            lost = next((each for each in self._known if each.address == address and not each.is_live), None)
            self._send(address, digest, lost)

    def _send_roster(self, receiver: SwimIdentity, address: str, *, answer: bool) -> None:
        """Each message includes the conflicting record if another process has the receiver's name, because messages can
        be lost."""
        about = self._known.get(receiver.name)
        contest = about if about is not None and about.instance != receiver.instance else None
        self._send_records(address, self._known.live(), contest, answer=answer)

    def _send_records(
        self, address: str, records: list[Record], every: Record | None = None, *, answer: bool = False
    ) -> None:
        """In as many messages as needed, with `every` in each; only the last one requests an answer."""
        pages: list[list[Record]] = []
        room = 0
        for record in records:
            size = self._size_of(record)
            if size > room:
                room = self._rumour_bytes_max
                pages.append([])
                if every is not None and self._size_of(every) + size <= room:
                    pages[-1].append(every)
                    room -= self._size_of(every)
            pages[-1].append(record)
            room -= size
        for number, page in enumerate(pages, 1):
            message = RosterMessage(self.own.identity, answer and number == len(pages), tuple(page))
            self.outbox.append((address, message))

    def _correct(self, message: RosterMessage, address: str) -> None:
        """Rosters contain live records only. Send back the records of nodes that are gone here, possibly of the sender
        itself."""
        gone = []
        for record in message.rumours:
            known = self._known.get(record.name)
            if known is not None and not known.is_live and known.supersedes(record):
                gone.append(known)
                self._rumours.add(known)
        self._send_records(address, gone)

    def _send(self, address: str, message: Message, receiver: Record | None) -> None:
        """Add rumours, beginning with the receiver's own record unless it is ALIVE."""
        first = None
        if receiver is self.own or (receiver is not None and receiver.state is not SwimState.ALIVE):
            first = receiver
        times_max = self.timing.spread_max(self._known.live_count)
        rumours = self._rumours.take(self._rumour_bytes_max, times_max, first)
        self.outbox.append((address, replace(message, rumours=rumours)))
