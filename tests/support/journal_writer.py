"""A process that writes a journal and prints what it has synced, until it is killed: `journal_writer.py DIRECTORY
SEED`.

Every line of its output is acknowledged: "index term vote".
"""

from __future__ import annotations

import asyncio
import random
import sys

from palisade.raftgroup.lmdb_journal import LmdbJournal
from palisade.raftgroup.ports import Entry


def command_of(index: int, term: int) -> bytes:
    """The content of the entry at this index and term: a reader can detect a wrong one."""
    return random.Random(f"{index} {term}").randbytes(index * 7919 % 3000)


async def write(directory: str, rng: random.Random) -> None:
    journal = LmdbJournal(directory, memory_bytes=20_000)
    while True:
        last = journal.last
        choice = rng.random()
        if choice < 0.05:
            journal.set_term(journal.term + 1, rng.choice((None, "n1", "n2")))
        elif choice < 0.10:
            journal.compact_to(journal.first.index + rng.randrange(last.index - journal.first.index + 1))
        for index in range(last.index + 1, last.index + 1 + rng.randrange(1, 20)):
            journal.append(Entry(command_of(index, journal.term), index, journal.term))
        await journal.sync()
        sys.stdout.write(f"{journal.last.index} {journal.term} {journal.vote}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], random.Random(int(sys.argv[2]))))
