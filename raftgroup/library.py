"""An adapter around PySyncObj 0.3.17: the only file that uses its private names.

The library implements the rules of Raft: terms, votes, leader, commit index, order of application. Its unsafe or slow
parts (pysyncobj.md) are replaced here: the journal, the transport, pickle, the poller, the order and size of appends,
snapshots, membership. Messages are screened before they reach its handlers (`replica.py`).
`tests/raftgroup/test_library_seams.py` pins the version and every private name used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgpack
import pysyncobj.syncobj as library
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.journal import Journal as LibraryJournal
from pysyncobj.node import Node
from pysyncobj.transport import Transport as LibraryTransport

from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.message_screen import Append
from palisade.raftgroup.ports import MEMBERSHIP, Clock, Entry, Journal, Random
from palisade.raftgroup.role import RaftRole
from palisade.raftgroup.timing import RaftTiming

_ROLES = {0: RaftRole.FOLLOWER, 1: RaftRole.CANDIDATE, 2: RaftRole.LEADER}
_LEADER = 2


class EngineHost(Protocol):
    """The engine's callbacks to the replica around it."""

    def may_campaign(self) -> bool:
        """Called when the election timeout has passed: whether an election may start now."""
        ...

    def send_vote_request(self, member: str, term: int, last_index: int, last_term: int) -> None: ...
    def send_vote(self, member: str, term: int) -> None: ...
    def send_appends(self) -> None:
        """Entries were added, the commit index moved, or a heartbeat may be due."""
        ...

    def answer_append(self, member: str, next_index: int, success: bool) -> None: ...
    def apply(self, entry: Entry) -> None: ...
    def membership_added(self, index: int, command: bytes) -> None: ...
    def truncated_from(self, index: int) -> None: ...
    def term_changed(self) -> None:
        """Term or vote were written: no message of this term may leave before they are synced."""
        ...


class _Peer(Node):  # type: ignore[misc]
    """A member as seen by the library. Its hash does not depend on PYTHONHASHSEED, so no order depends on it either."""

    def __init__(self, member: str) -> None:
        super().__init__(member)
        self._hash = int.from_bytes(member.encode()[-7:], "big")

    def __hash__(self) -> int:
        return self._hash


class _NoPickle:
    """Replaces pickle. It never encodes anything: commands are raw bytes."""

    @staticmethod
    def dumps(value: Any, protocol: int | None = None) -> bytes:
        packed: bytes = msgpack.packb(value)
        return packed

    @staticmethod
    def loads(data: bytes) -> Any:
        return msgpack.unpackb(data)


class _NoPoller:
    """The event loop polls; the library must not make a useless system call on each tick."""

    def subscribe(self, *_: Any) -> None: ...
    def unsubscribe(self, *_: Any) -> None: ...
    def poll(self, _timeout: float) -> None: ...


class _NoSerializer:
    """Snapshots are taken and sent by `snapshots.py`; the library never starts one."""

    def cancelTransmisstion(self, _node: Any) -> None: ...  # noqa: N802 - the library's spelling


class _JournalView(LibraryJournal):  # type: ignore[misc]
    """The library's journal interface, by offsets, over ours, by indexes."""

    def __init__(self, journal: Journal, host: EngineHost) -> None:
        self._journal = journal
        self._host = host

    def add(self, command: bytes, idx: int, term: int) -> None:
        self._journal.append(Entry(command, idx, term))
        if command[:1] == MEMBERSHIP:
            self._host.membership_added(idx, command)

    def __len__(self) -> int:
        return self._journal.last.index - self._journal.first.index + 1

    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            start, stop, _ = key.indices(len(self))
            first = self._journal.first.index
            return self._journal.slice(first + start, first + stop)
        if key == -1:
            return self._journal.last
        if key == 0:
            return self._journal.first
        index = self._journal.first.index + key
        return self._journal.slice(index, index + 1)[0]

    def clear(self) -> None:
        raise NodeFailed("the consensus library tried to clear the log; only a snapshot may do that")

    def deleteEntriesFrom(self, entryFROM: int) -> None:  # noqa: N802, N803
        index = self._journal.first.index + entryFROM
        self._journal.truncate_from(index)
        self._host.truncated_from(index)

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803
        raise NodeFailed("the consensus library tried to compact the log; only the group may do that")

    def setCurrentTerm(self, currentTerm: int, votedForNodeId: str | None = None) -> None:  # noqa: N802, N803
        self._journal.set_term(currentTerm, votedForNodeId)
        self._host.term_changed()

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self._journal.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        return self._journal.vote

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        return 1

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803
        """Not stored: after a restart the commit index is learned from the leader (pysyncobj.md, fault 6)."""

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """The library would flush its own files here."""

    def _destroy(self) -> None:
        """Closed by its owner."""


class _TransportView(LibraryTransport):  # type: ignore[misc]
    """Converts the library's dicts into calls of the host; always reports connected peers."""

    def __init__(self, host: EngineHost) -> None:
        super().__init__(None, None, [])
        self._host = host

    def addNode(self, node: Node) -> None: ...  # noqa: N802
    def dropNode(self, node: Node) -> None: ...  # noqa: N802

    def send(self, node: Node, message: dict[str, Any]) -> bool:
        kind = message["type"]
        if kind == "next_node_idx":
            self._host.answer_append(node.id, message["next_node_idx"], message["success"])
        elif kind == "request_vote":
            self._host.send_vote_request(node.id, message["term"], message["last_log_index"], message["last_log_term"])
        elif kind == "response_vote":
            self._host.send_vote(node.id, message["term"])
        else:
            raise NodeFailed(f"the consensus library sent an unexpected message {kind!r}")
        return True

    def deliver(self, node: Node, message: dict[str, Any]) -> None:
        self._onMessageReceived(node, message)


class Engine(SyncObj):  # type: ignore[misc]
    """One replica of the library, driven by `tick` and by deliveries; never starts a thread, socket or file."""

    def __init__(
        self, own_id: str, *, host: EngineHost, journal: Journal, clock: Clock, random: Random, timing: RaftTiming
    ) -> None:
        self._host = host
        self._journal = journal
        self._clock = clock
        self._random = random
        self._view = _TransportView(host)
        self._peers: dict[str, _Peer] = {}
        self._enter()
        library.createJournal = lambda _file: _JournalView(journal, host)
        library.createPoller = lambda _kind: _NoPoller()
        library.pickle = _NoPickle
        library.PIPE_NOTIFIER_ENABLED = False
        super().__init__(_Peer(own_id), [], conf=_configuration(timing), transport=self._view)
        self._SyncObj__serializer = _NoSerializer()

    def _peer(self, member: str) -> _Peer:
        peer = self._peers.get(member)
        if peer is None:
            peer = self._peers[member] = _Peer(member)
        return peer

    # Input.

    def _enter(self) -> None:
        """Every call into the library sets its clock and random source, which are globals of its module."""
        library.monotonicTime = self._clock.now
        library.random = self._random

    def tick(self) -> None:
        """Elections, commit index, apply, appends: everything due now. Exceptions of `apply` propagate."""
        self._enter()
        self._onTick(0.0)

    def append(self, command: bytes) -> Entry:
        """On a leader: append one entry to its log. The caller sends it."""
        if not self.leads:
            raise NodeFailed("an entry was to be appended by a node that does not lead: restart the node")
        entry = Entry(command, self._journal.last.index + 1, self.term)
        self._journal.append(entry)
        return entry

    def deliver_heartbeat(self, leader: str, term: int) -> None:
        """A leader of this or a later term is alive; appends and commits nothing."""
        commit = self._SyncObj__raftCommitIndex
        self._deliver(leader, {"type": "append_entries", "term": term, "commit_index": commit, "entries": []})

    def deliver_append(self, leader: str, append: Append) -> None:
        message = {
            "type": "append_entries",
            "term": append.term,
            "commit_index": self._SyncObj__raftCommitIndex,
            "entries": append.entries,
            "prevLogIdx": append.prev_index,
            "prevLogTerm": append.prev_term,
        }
        self._deliver(leader, message)

    def deliver_vote_request(self, candidate: str, term: int, last_index: int, last_term: int) -> None:
        message = {"type": "request_vote", "term": term, "last_log_index": last_index, "last_log_term": last_term}
        self._deliver(candidate, message)

    def deliver_vote(self, voter: str, term: int) -> None:
        self._deliver(voter, {"type": "response_vote", "term": term})

    def deliver_acknowledgement(self, follower: str, match: int) -> None:
        """`follower` holds everything up to `match`; entries already sent beyond it are not sent again."""
        node = self._peer(follower)
        sent_up_to = self._SyncObj__raftNextIndex.get(node)
        if sent_up_to is None:
            return
        message = {"type": "next_node_idx", "next_node_idx": match + 1, "reset": False, "success": True}
        self._deliver(follower, message)
        self._SyncObj__raftNextIndex[node] = max(sent_up_to, match + 1)

    def deliver_contact(self, follower: str) -> None:
        """`follower` has answered, which keeps the leader from stepping down."""
        self._enter()
        self._SyncObj__lastResponseTime[self._peer(follower)] = self._clock.now()

    def campaign_now(self, leader: str, term: int) -> None:
        """The leader hands over: start an election at the next tick (Raft thesis 3.10)."""
        self._deliver(leader, {"type": "timeout_now", "term": term})

    def campaign_at_once(self) -> None:
        """In a group of one: there is no one else to wait for."""
        self._SyncObj__raftElectionDeadline = 0.0

    def adopt_term(self, term: int) -> None:
        """A later term exists: no leader and no vote in it yet."""
        self._enter()
        self._SyncObj__setCurrentTerm(term, None)
        self.fall_back()

    def fall_back(self) -> None:
        """Stop leading or campaigning, in the same term."""
        self._SyncObj__setState(0)
        self._SyncObj__raftLeader = None
        self.postpone_election()

    def postpone_election(self) -> None:
        """Restart the election timeout."""
        self._enter()
        timeout = self._SyncObj__generateRaftTimeout()
        self._SyncObj__raftElectionDeadline = self._clock.now() + timeout

    def retry_election(self, soonest_s: float, latest_s: float) -> None:
        """The next election is due at a random time between these two from now, not after a whole timeout."""
        wait_s = soonest_s + (latest_s - soonest_s) * self._random.random()
        self._SyncObj__raftElectionDeadline = self._clock.now() + wait_s

    def commit_to(self, index: int) -> None:
        """A follower learned that everything up to `index`, which it holds, is committed."""
        self._SyncObj__raftCommitIndex = max(index, self.commit_index)

    def restore(self, applied: int) -> None:
        """The state machine is at `applied`, from disk or from a snapshot: continue from there.

        Raises NodeFailed if that would be a step back (pysyncobj.md, fault 9).
        """
        if self.commit_index > max(applied, 1):
            raise NodeFailed(
                f"a state at index {applied} is older than the commit index of this node ({self.commit_index}): it was "
                "installed too late. Restart the node; it continues from the state on its disk"
            )
        self._SyncObj__raftLastApplied = applied
        self._SyncObj__raftCommitIndex = applied

    def set_members(self, voters: Sequence[str], learners: Sequence[str]) -> None:
        """The members to count and to replicate to, without this node."""
        self._enter()
        self._SyncObj__otherNodes = {self._peer(voter) for voter in voters}
        self._SyncObj__readonlyNodes = {self._peer(learner) for learner in learners}
        members = self._SyncObj__otherNodes | self._SyncObj__readonlyNodes
        for table in (self._SyncObj__raftNextIndex, self._SyncObj__raftMatchIndex, self._SyncObj__lastResponseTime):
            for node in [node for node in table if node not in members]:
                del table[node]
        for node in members:
            self._SyncObj__raftNextIndex.setdefault(node, self._journal.last.index + 1)
            self._SyncObj__raftMatchIndex.setdefault(node, 0)
            self._SyncObj__lastResponseTime.setdefault(node, self._clock.now())

    def forget_progress(self, member: str) -> None:
        """`member` has a new storage: its content is unknown."""
        node = self._peer(member)
        if node in self._SyncObj__raftMatchIndex:
            self._SyncObj__raftMatchIndex[node] = 0
            self._SyncObj__raftNextIndex[node] = self._journal.last.index + 1

    def _deliver(self, member: str, message: dict[str, Any]) -> None:
        self._enter()
        self._view.deliver(self._peer(member), message)

    # State.

    @property
    def role(self) -> RaftRole:
        return _ROLES[self._SyncObj__raftState]

    @property
    def leads(self) -> bool:
        leads: bool = self._SyncObj__raftState == _LEADER
        return leads

    @property
    def term(self) -> int:
        term: int = self._SyncObj__raftCurrentTerm
        return term

    @property
    def vote(self) -> str | None:
        vote: str | None = self._SyncObj__votedForNodeId
        return vote

    @property
    def leader(self) -> str | None:
        node = self._SyncObj__raftLeader
        return None if node is None else str(node.id)

    @property
    def commit_index(self) -> int:
        index: int = self._SyncObj__raftCommitIndex
        return index

    @property
    def applied_index(self) -> int:
        index: int = self._SyncObj__raftLastApplied
        return index

    @property
    def first_index_of_term(self) -> int | None:
        """The index of the no-op with which this leader began its term."""
        index: int | None = self._SyncObj__noopIDx
        return index

    def next_index(self, member: str) -> int:
        index: int = self._SyncObj__raftNextIndex[self._peer(member)]
        return index

    def set_next_index(self, member: str, index: int) -> None:
        self._SyncObj__raftNextIndex[self._peer(member)] = index

    def match_index(self, member: str) -> int | None:
        """None while unknown; the library uses 0 for that."""
        return self._SyncObj__raftMatchIndex.get(self._peer(member)) or None

    # Overrides of the library's own calls.

    def _SyncObj__connectedToAnyone(self) -> bool:  # noqa: N802
        return self._host.may_campaign()

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Commands are appended directly by `append`; the library's queue of commands stays empty."""

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        self._host.send_appends()

    def _SyncObj__getEntries(  # noqa: N802
        self,
        from_index: int | None,
        count: int | None = None,
        maxSizeBytes: int | None = None,  # noqa: N803
    ) -> Sequence[Entry]:
        """Only the commit rule asks for a single entry. It must not count entries that are not on the leader's own
        disk: an unsynced entry does not exist for it."""
        if from_index is None or from_index < self._journal.first.index:
            return []
        if count is None:
            return self._journal.slice(from_index, self._journal.last.index + 1)
        if count == 1 and self.leads and from_index > self._journal.synced_index and from_index > self.commit_index:
            return []
        return self._journal.slice(from_index, from_index + count)

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        """Returns whether the followers may be sent a new commit index. An entry counts as applied once the host has
        returned; an exception of the host stops the node."""
        applied, commit = self.applied_index, self.commit_index
        if applied >= commit:
            return False
        for entry in self._journal.slice(applied + 1, commit + 1):
            if entry.index != applied + 1:
                break
            self._host.apply(entry)
            applied = self._SyncObj__raftLastApplied = entry.index
        if applied < commit:
            raise NodeFailed(f"entry {applied + 1} must be applied but is not in the log")
        return True

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """The group compacts the journal up to the durable state of the state machine."""


def _configuration(timing: RaftTiming) -> SyncObjConf:
    return SyncObjConf(
        autoTick=False,
        appendEntriesUseBatch=False,
        dynamicMembershipChange=False,
        commandsWaitLeader=False,
        commandsQueueSize=0,
        raftMinTimeout=timing.election_timeout_min_s,
        raftMaxTimeout=timing.election_timeout_max_s,
        appendEntriesPeriod=timing.heartbeat_s,
        leaderFallbackTimeout=timing.election_timeout_min_s,
        connectionTimeout=timing.election_timeout_max_s,
    )
