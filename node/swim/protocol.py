"""One node's part in SWIM: messages and ticks in, messages and changes out. Pure.

What it guarantees (Das, Gupta, Motivala 2002, "SWIM"), and why:
- A node that stops is found by every other one, in bounded time: each asks all others in turn (`roster.py`), and who
  answers neither directly nor through `proxies` others is suspected, and dead when it does not object in time.
- A node that is there is not lost for a lost message: one suspicion is refuted by one word of the suspect, which
  raises its incarnation, and whoever speaks to a suspect tells it so (Lifeguard, "buddy system").
- A pause of this node is not held against others: its own clock stands still for it (`_advance`), so answers that wait
  in its socket are read before anybody is judged by their absence.
- The work of a node does not grow with the cluster: one ping a period, rumours ride along, and the comparison of
  whole rosters costs one number while they are equal (`Digest`).
- All end with the same roster once nothing changes any more: records are totally ordered (`record.py`), rumours bring
  most, and comparing digests with a random node every `sync_periods` brings the rest. Every other time with one that
  is gone, or a seed, so that the halves of a split cluster find each other again.
- Two processes with one name: the one that came later hears of the other, asks it, and stops when that one answers.

The caller owns socket, clock and randomness: it calls `tick` at `due` at the latest, sends what is in `outbox`, and
reads `changes`. Times are seconds of any clock that does not go back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from node.swim.messages import Ack, Digest, Message, Ping, PingRequest, Roster
from node.swim.record import Identity, Record, State
from node.swim.roster import Chance
from node.swim.roster import Roster as Known
from node.swim.rumours import RumourBook
from node.swim.timing import SwimTiming

LEAVE_TO = 5
"""How many nodes are told at once that this one leaves; they tell the others."""


@dataclass(frozen=True, slots=True)
class Change:
    """The physical topology as this node sees it: `now` is the record that has replaced `before`."""

    before: Record | None
    now: Record


@dataclass(slots=True)
class _Probe:
    """The one node that is asked in this period."""

    target: Record
    number: int
    relay_at: float | None


@dataclass(frozen=True, slots=True)
class _Relay:
    """A ping for somebody else: who waits for the answer, under which number, until when."""

    address: str
    number: int
    target: Identity
    until: float


class Swim:
    """`size_of`: bytes of a record on the wire; `rumour_bytes_max`: room for them in one message."""

    def __init__(
        self,
        own: Record,
        seeds: Iterable[str],
        chance: Chance,
        now: float,
        *,
        size_of: Callable[[Record], int],
        rumour_bytes_max: int,
        timing: SwimTiming | None = None,
    ) -> None:
        self.timing = timing or SwimTiming()
        self.own = own
        self.duplicate: str | None = None
        """Why this node has to stop: another process has its name, and answers."""
        self.outbox: list[tuple[str, Message]] = []
        self.changes: list[Change] = []
        self._seeds = tuple(seed for seed in seeds if seed != own.address)
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
        """Of suspects: when they are dead. Of who is gone: when that is forgotten."""
        self._contested: Record | None = None
        self._contest_number = 0

    # What others ask.

    def live(self) -> list[Record]:
        """The physical topology, this node among it."""
        return self._known.live()

    def records(self) -> list[Record]:
        """Of all that this node knows, those that are gone among them."""
        return list(self._known)

    def get(self, name: str) -> Record | None:
        return self._known.get(name)

    @property
    def contested(self) -> Record | None:
        """A record of another process under this name; until that is settled, others do not take this one for it."""
        return self._contested

    def add_seeds(self, addresses: Iterable[str]) -> None:
        """More nodes that may know the others."""
        known = {*self._seeds, self.own.address}
        self._seeds += tuple(dict.fromkeys(each for each in addresses if each not in known))

    # Time.

    def tick(self, now: float) -> float:
        """Do what is due. Returns the time of the next tick."""
        self._advance(now)
        if self._probe is not None and self._probe.relay_at is not None and self._clock >= self._probe.relay_at:
            self._ask_proxies(self._probe)
        if self._clock >= self._period_at:
            self._period()
        self._expire()
        return now + max(0.0, self._next_due() - self._clock)

    def _advance(self, now: float) -> None:
        """The own clock goes on by a period at most: a longer step means that this process was paused."""
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
        if self.own.state is State.LEFT:
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
            if record.state is State.SUSPECT:
                self._learn(record.become(State.DEAD))
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
        """Unless it has said something newer of itself meanwhile."""
        record = self._known.get(target.name)
        if record is not None and record.order == target.become(State.ALIVE).order:
            self._learn(record.become(State.SUSPECT))

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    # Messages.

    def receive(self, message: Message, address: str, now: float) -> None:
        """`address`: where it came from, and where an answer goes."""
        self._advance(now)
        for rumour in message.rumours:
            self._hear(rumour)
        if isinstance(message, Ping):
            answer = Ack(self.own.identity, message.number, self.own.identity)
            self._send(address, answer, self._known.get(message.source.name))
        elif isinstance(message, PingRequest):
            self._relay(message, address)
        elif isinstance(message, Ack):
            self._acknowledged(message)
        elif isinstance(message, Digest):
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
                f"the name {self.own.name} is taken: a node of this name runs at {contested.address} and answers; "
                "stop that one, or start this one with another --id"
            )

    # What is heard.

    def _hear(self, record: Record) -> None:
        if record.name == self.own.name:
            self._hear_of_self(record)
            return
        known = self._known.get(record.name)
        if known is not None and known.is_live and record.state is State.DEAD:
            # Who was cut off holds all others for dead. That counts as a suspicion, which they have time to refute.
            record = record.become(State.SUSPECT)
        if known is None or record.supersedes(known):
            self._learn(record)

    def _learn(self, record: Record) -> None:
        before = self._known.get(record.name)
        self._known.put(record)
        self._rumours.add(record)
        self._deadlines.pop(record.name, None)
        if record.state is State.SUSPECT:
            self._deadlines[record.name] = self._clock + self.timing.suspicion_s(self._known.live_count)
        elif not record.is_live:
            self._deadlines[record.name] = self._clock + self.timing.forget_s
        asked = self._probe.target if self._probe is not None else None
        if asked is not None and asked.name == record.name and asked.instance != record.instance:
            self._probe = None
        if record.is_live or before is not None:
            self.changes.append(Change(before, record))

    # This node itself.

    def _hear_of_self(self, record: Record) -> None:
        if record.instance == self.own.instance:
            if record.order > self.own.order and self.own.state is not State.LEFT:
                self._raise_above(record)
        elif not record.supersedes(self.own):
            return
        elif not record.is_live or record.address == self.own.address:
            self._contested = None
            self._raise_above(record)
        else:
            self._contested = record

    def _raise_above(self, record: Record) -> None:
        """Refutes what is said of this node, and of the life before this one. Only one process listens at an address:
        a record of another instance there is that of a process that has ended."""
        self._announce(replace(self.own, incarnation=record.incarnation + 1))

    def _announce(self, own: Record) -> None:
        before, self.own = self.own, own
        self._known.put(own)
        self._rumours.add(own)
        self.changes.append(Change(before, own))

    def settle(self) -> None:
        """A node starts with incarnation 0, and takes 1 when it has heard from others that nobody has its name, or was
        let into the cluster: so who comes later never supersedes who is there."""
        if self.own.incarnation == 0 and self._contested is None:
            self._raise_above(self.own)

    def _ask_contested(self) -> None:
        if self._contested is not None:
            self._contest_number = self._next_number()
            ping = Ping(self.own.identity, self._contest_number, self._contested.identity)
            self._send(self._contested.address, ping, None)

    def retag(self, tags: tuple[tuple[str, str], ...]) -> None:
        """Tell the others something else about this node."""
        if tags != self.own.tags and self.own.state is not State.LEFT:
            self._announce(replace(self.own, tags=tags, incarnation=self.own.incarnation + 1))

    def leave(self) -> None:
        """Say good-bye; nothing is refuted any more. Send what is in the outbox, then stop."""
        if self.own.state is State.LEFT:
            return
        self._announce(self.own.become(State.LEFT))
        for record in self._known.sample(LEAVE_TO):
            self._send(record.address, Ping(self.own.identity, self._next_number(), record.identity), self.own)

    # Comparing rosters.

    def _synchronize(self, alone: bool) -> None:
        """With a live one, or with one that may have been lost in a split: in turn. Alone: with every seed."""
        digest = Digest(self.own.identity, self._known.digest())
        if alone:
            for seed in self._seeds:
                self._send(seed, digest, None)
        if (self._periods // self.timing.sync_periods) % 2 == 0:
            for record in self._known.sample(1):
                self._send(record.address, digest, record)
            return
        known = {record.address for record in self._known if record.is_live}
        gone = [record.address for record in self._known if record.state is State.DEAD]
        candidates = sorted({*gone, *self._seeds} - known)
        if candidates and not alone:
            address = candidates[self._chance.randrange(len(candidates))]
            lost = next((each for each in self._known if each.address == address and not each.is_live), None)
            self._send(address, digest, lost)

    def _send_roster(self, receiver: Identity, address: str, *, answer: bool) -> None:
        """Whatever arrives of it, a receiver whose name somebody else has hears that."""
        about = self._known.get(receiver.name)
        contest = about if about is not None and about.instance != receiver.instance else None
        self._send_records(address, self._known.live(), contest, answer=answer)

    def _send_records(
        self, address: str, records: list[Record], every: Record | None = None, *, answer: bool = False
    ) -> None:
        """In as many messages as it takes, `every` in each; only the last one asks for an answer."""
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
            message = Roster(self.own.identity, answer and number == len(pages), tuple(page))
            self.outbox.append((address, message))

    def _correct(self, message: Roster, address: str) -> None:
        """Rosters hold live records only; who has one of a node that is gone is told so, that node itself too."""
        gone = []
        for record in message.rumours:
            known = self._known.get(record.name)
            if known is not None and not known.is_live and known.supersedes(record):
                gone.append(known)
                self._rumours.add(known)
        self._send_records(address, gone)

    def _send(self, address: str, message: Message, receiver: Record | None) -> None:
        """With rumours; first of all what concerns the receiver, if that is not the best."""
        first = None
        if receiver is self.own or (receiver is not None and receiver.state is not State.ALIVE):
            first = receiver
        times_max = self.timing.spread_max(self._known.live_count)
        rumours = self._rumours.take(self._rumour_bytes_max, times_max, first)
        self.outbox.append((address, replace(message, rumours=rumours)))
