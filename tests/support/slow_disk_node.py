"""`python -m tests.support.slow_disk_node SECONDS_FILE node --id n1 ...`: a node whose disk is slow.

Every commit of the journal and of the store takes as many seconds longer as the file contains at that moment (none if
there is no such file). The delay is where an fsync waits: in the threads that commit.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import palisade.metastore.lmdb_store
import palisade.raftgroup.lmdb_journal
from palisade.base.commit_thread import DiskThread
from palisade.cli.main import main
from palisade.raftgroup.journal import LogChanges
from palisade.raftgroup.lmdb_journal import JournalFile

SECONDS_FILE = Path(sys.argv[1])


def delayed(work: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        with contextlib.suppress(OSError, ValueError):
            time.sleep(float(SECONDS_FILE.read_text()))
        return work()

    return run


class SlowJournalFile(JournalFile):
    def begin(self, changes: LogChanges) -> Callable[[], object]:
        return delayed(super().begin(changes))


class SlowDiskThread(DiskThread):
    async def run(self, work: Callable[[], Any]) -> Any:
        return await super().run(delayed(work))


def plant(module: Any, name: str, slow: type) -> None:
    if not issubclass(slow, getattr(module, name)):
        raise TypeError(f"{module.__name__}.{name} is not what was to be made slow")
    setattr(module, name, slow)


if __name__ == "__main__":
    plant(palisade.raftgroup.lmdb_journal, "JournalFile", SlowJournalFile)
    plant(palisade.metastore.lmdb_store, "DiskThread", SlowDiskThread)
    sys.argv = ["palisade", *sys.argv[2:]]
    main()
