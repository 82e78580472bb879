"""One thread that commits, so that a slow disk stops nothing else - and how to learn that it is done.

A commit takes about 0.2 ms on a good disk and seconds on a bad day. The thread keeps the event loop out of the bad
day. On a good one it should not cost much, and there are two ways to lose:

- A wake-up of the loop costs more than the rest of the commit, so the loop first waits for the thread, for at most
  `PATIENCE_S`. Once a commit took longer, the loop does not wait again before a quick one was seen.
- A thread that wants the interpreter's lock while the loop is busy may starve: a loop that lets go of the lock and
  takes it again every few microseconds (each system call does) wins every race. Seen: 2 s and more for a commit of
  0.25 ms. So nobody relies on the thread to call back: the loop asks, and lets go of the lock for `YIELD_S` each
  time it asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

PATIENCE_S = 0.002
POLL_S = 0.001
YIELD_S = 0.0002


class Commit:
    """One piece of work of the thread. `error` is what it raised, once `wait` has said True."""

    __slots__ = ("_done", "_work", "error")

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._done = threading.Lock()
        self._done.acquire()
        self.error: BaseException | None = None

    def wait(self, timeout_s: float) -> bool:
        """Whether it is done, after at most that time. Lets go of the interpreter's lock."""
        if not self._done.acquire(timeout=timeout_s):
            return False
        self._done.release()
        return True

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error
        finally:
            self._done.release()


class CommitThread:
    """Runs what it is given, in order."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Commit | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], object]) -> Commit:
        commit = Commit(work)
        self._queue.put(commit)
        return commit

    def close(self) -> None:
        """Return when everything submitted is done."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (commit := self._queue.get()) is not None:
            commit.run()
