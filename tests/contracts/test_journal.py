"""The contract of a journal (raftgroup/ports.py), for the real and the simulated one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.ports import Entry


def entry(index: int, term: int = 1, command: bytes | None = None) -> Entry:
    return Entry(b"command %d" % index if command is None else command, index, term)


def fill(journal: Any, last: int, term: int = 1) -> None:
    for index in range(journal.last.index + 1, last + 1):
        journal.append(entry(index, term))


def held(journal: Any) -> list[Entry]:
    return list(journal.slice(journal.first.index + 1, journal.last.index + 1))


async def test_new_journal_is_empty(disk: Any) -> None:
    journal = disk.open()
    assert journal.first == journal.last == Entry(b"", 0, 0)
    assert (journal.term, journal.vote, journal.synced_index) == (0, None, 0)
    assert journal.get_meta("incarnation") is None


async def test_journal_reads_its_writes_at_once(disk: Any) -> None:
    journal = disk.open()
    fill(journal, 5)
    assert journal.last == entry(5)
    assert journal.term_at(3) == 1
    assert journal.term_at(6) is None
    assert list(journal.slice(2, 4)) == [entry(2), entry(3)]
    assert list(journal.slice(5, 9)) == [entry(5)]
    assert list(journal.slice(6, 9)) == []
    assert list(journal.slice(0, 2)) == [Entry(b"", 0, 0), entry(1)]
    assert journal.dirty
    assert journal.synced_index == 0


async def test_synced_changes_survive_a_power_failure(disk: Any) -> None:
    """M9; fault 4 of PySyncObj."""
    journal = disk.open()
    fill(journal, 300)
    journal.set_term(7, "n2")
    journal.set_meta("incarnation", b"\x00\x01")
    await journal.sync()
    assert not journal.dirty
    assert journal.synced_index == 300
    journal = disk.lose_power()
    assert held(journal) == [entry(index) for index in range(1, 301)]
    assert (journal.term, journal.vote) == (7, "n2")
    assert journal.get_meta("incarnation") == b"\x00\x01"
    assert journal.synced_index == 300
    assert not journal.dirty


async def test_unsynced_changes_are_lost_as_a_whole(disk: Any) -> None:
    journal = disk.open()
    fill(journal, 3)
    journal.set_term(1, "n1")
    await journal.sync()
    fill(journal, 9)
    journal.truncate_from(3)
    journal.set_term(2, None)
    journal.set_meta("name", b"value")
    journal = disk.lose_power()
    assert held(journal) == [entry(1), entry(2), entry(3)]
    assert (journal.term, journal.vote) == (1, "n1")
    assert journal.get_meta("name") is None


async def test_conflict_replaces_synced_entries(disk: Any) -> None:
    journal = disk.open()
    fill(journal, 10)
    await journal.sync()
    journal.truncate_from(4)
    assert journal.last == entry(3)
    assert journal.synced_index == 3
    fill(journal, 6, term=2)
    assert journal.synced_index == 3
    await journal.sync()
    assert journal.synced_index == 6
    journal = disk.lose_power()
    assert held(journal) == [entry(1), entry(2), entry(3), *(entry(index, 2) for index in (4, 5, 6))]


async def test_truncation_past_the_end_changes_nothing(disk: Any) -> None:
    journal = disk.open()
    fill(journal, 3)
    await journal.sync()
    journal.truncate_from(4)
    assert not journal.dirty
    assert journal.last == entry(3)


async def test_truncation_alone_is_durable(disk: Any) -> None:
    journal = disk.open()
    fill(journal, 5)
    await journal.sync()
    journal.truncate_from(2)
    await journal.sync()
    journal = disk.lose_power()
    assert held(journal) == [entry(1)]


async def test_base_is_never_truncated(disk: Any) -> None:
    journal = disk.open()
    fill(journal, 5)
    journal.compact_to(3)
    with pytest.raises(NodeFailed, match="up to 3 is committed"):
        journal.truncate_from(3)


async def test_compaction_keeps_the_base_and_later_entries(disk: Any) -> None:
    journal = disk.open()
    fill(journal, 300)
    await journal.sync()
    journal.compact_to(290)
    assert journal.first == Entry(b"", 290, 1)
    assert journal.term_at(290) == 1
    assert journal.term_at(289) is None
    await journal.sync()
    journal = disk.lose_power()
    assert journal.first == Entry(b"", 290, 1)
    assert held(journal) == [entry(index) for index in range(291, 301)]


async def test_unsynced_compaction_is_undone_by_a_power_failure(disk: Any) -> None:
    journal = disk.open()
    fill(journal, 20)
    await journal.sync()
    journal.compact_to(20)
    assert journal.last == journal.first == Entry(b"", 20, 1)
    journal = disk.lose_power()
    assert journal.first == Entry(b"", 0, 0)
    assert held(journal) == [entry(index) for index in range(1, 21)]


async def test_compaction_may_pass_the_synced_index(disk: Any) -> None:
    """A follower may apply entries, and store their effect, that the others had synced before itself."""
    journal = disk.open()
    fill(journal, 300)
    await journal.sync()
    fill(journal, 312)
    journal.compact_to(310)
    await journal.sync()
    journal = disk.lose_power()
    assert journal.first == Entry(b"", 310, 1)
    assert held(journal) == [entry(311), entry(312)]
    fill(journal, 313)
    await journal.sync()
    journal = disk.lose_power()
    assert held(journal) == [entry(311), entry(312), entry(313)]


async def test_long_compaction_continues_over_restarts(disk: Any) -> None:
    """A crash in the middle of a compaction (scenarios, Raft group; fault 5 of PySyncObj)."""
    journal = disk.open()
    fill(journal, 1000)
    await journal.sync()
    journal.compact_to(900)
    for _ in range(20):
        fill(journal, journal.last.index + 1)
        await journal.sync()
        journal = disk.lose_power()
        assert journal.first == Entry(b"", 900, 1)
        assert journal.slice(901, 902) == [entry(901)]
        assert journal.synced_index == journal.last.index
    assert journal.last.index == 1020


async def test_reset_drops_the_log(disk: Any) -> None:
    journal = disk.open()
    fill(journal, 300)
    await journal.sync()
    journal.reset(50, 3)
    assert journal.first == journal.last == Entry(b"", 50, 3)
    assert journal.synced_index < 50
    journal.append(entry(51, 3))
    await journal.sync()
    assert journal.synced_index == 51
    journal = disk.lose_power()
    assert journal.first == Entry(b"", 50, 3)
    assert held(journal) == [entry(51, 3)]


async def test_unsynced_reset_is_undone_by_a_power_failure(disk: Any) -> None:
    journal = disk.open()
    fill(journal, 3)
    await journal.sync()
    journal.reset(50, 3)
    journal = disk.lose_power()
    assert held(journal) == [entry(1), entry(2), entry(3)]


async def test_entry_that_does_not_follow_is_refused(disk: Any) -> None:
    journal = disk.open()
    fill(journal, 3, term=2)
    with pytest.raises(NodeFailed, match="entry 5 of term 2 can't follow entry 3"):
        journal.append(entry(5, 2))
    with pytest.raises(NodeFailed, match="term 1 can't follow"):
        journal.append(entry(4, 1))


async def test_term_never_decreases_and_a_vote_is_given_once(disk: Any) -> None:
    """Raft, section 5.2; scenarios: crash after vote before reply."""
    journal = disk.open()
    journal.set_term(3, None)
    journal.set_term(3, "n1")
    journal.set_term(3, "n1")
    for term, vote in ((2, None), (3, "n2"), (3, None)):
        with pytest.raises(NodeFailed, match="a vote never changes"):
            journal.set_term(term, vote)
    journal.set_term(4, None)
    await journal.sync()
    journal = disk.lose_power()
    assert (journal.term, journal.vote) == (4, None)


async def test_new_term_clears_the_vote(disk: Any) -> None:
    journal = disk.open()
    journal.set_term(3, "n1")
    await journal.sync()
    journal.set_term(4, None)
    await journal.sync()
    assert disk.lose_power().vote is None


async def test_journal_stores_large_commands(disk: Any) -> None:
    """One batch may hold several requests of 2 MiB."""
    journal = disk.open()
    commands = [bytes([number]) * size for number, size in enumerate((0, 1, 4096, 2 << 20, 8 << 20))]
    for index, command in enumerate(commands, 1):
        journal.append(entry(index, 1, command))
    await journal.sync()
    journal = disk.lose_power()
    assert [item.command for item in held(journal)] == commands


async def test_concurrent_syncs_all_cover_earlier_writes(disk: Any) -> None:
    journal = disk.open()

    async def write(index: int) -> None:
        journal.append(entry(index))
        await journal.sync()
        assert journal.synced_index >= index

    await asyncio.gather(*(write(index) for index in range(1, 101)))
    assert not journal.dirty
    assert held(disk.lose_power()) == [entry(index) for index in range(1, 101)]


async def test_cancelled_sync_loses_nothing(disk: Any) -> None:
    journal = disk.open()
    fill(journal, 2)
    task = asyncio.ensure_future(journal.sync())
    await asyncio.sleep(0)
    task.cancel()
    fill(journal, 4)
    await journal.sync()
    assert held(disk.lose_power()) == [entry(index) for index in range(1, 5)]


async def test_sync_without_changes_returns(disk: Any) -> None:
    journal = disk.open()
    await journal.sync()
    fill(journal, 1)
    await journal.sync()
    await journal.sync()
    assert journal.synced_index == 1
