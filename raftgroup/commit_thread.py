"""One thread that commits, so that a slow disk stops nothing else - and how to learn that it is done.

A commit takes about 0.2 ms on a good disk and seconds on a bad day. The thread keeps the event loop out of the bad day.
On a good one it should not cost much either:

- A loop with little else to do waits for the thread, for at most `PATIENCE_S`: to be woken up costs half as much again
  as the commit. Once a commit took longer, the loop does not wait again before a quick one was seen.
- A loop with much to do (`BusyMeter`) goes on, since it would serve nobody meanwhile. The thread rings a bell, which
  the loop hears as it hears a socket.

A thread that wants the interpreter's lock while the loop is busy may starve: a loop that lets go of the lock and takes
it again every few microseconds (each system call does) may win every race. Seen: 2 s and more for a commit of 0.25 ms.
So nobody relies on the bell: the loop also asks every `POLL_S`, and lets go of the lock for `YIELD_S` when it does.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

PATIENCE_S = 0.002
POLL_S = 0.001
YIELD_S = 0.0002
BUSY = 0.3
START_S = 0.00005
"""For that long a loop that has handed over work lets go of the lock, so that the work begins."""


class BusyMeter:
    """Of the thread that asks: whether it was at work for more than `BUSY` of the time since it asked last. What it
    waited for commits in place counts as idle."""

    def __init__(
        self, worked_s: Callable[[], float] = time.thread_time, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clocks = worked_s, now
        self._worked_s, self._at = worked_s(), now()

    def busy(self) -> bool:
        worked_s, at = self._worked_s, self._at
        self._worked_s, self._at = (clock() for clock in self._clocks)
        return self._worked_s - worked_s > BUSY * (self._at - at)


class Bell:
    """A pipe: whoever waits for its `fileno` to be readable is woken by `ring`, from any thread. Then `hush` it."""

    def __init__(self) -> None:
        self._hears, self._rings = os.pipe()
        os.set_blocking(self._hears, False)
        os.set_blocking(self._rings, False)

    def fileno(self) -> int:
        return self._hears

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._rings, b"!")

    def hush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._hears, 4096)

    def close(self) -> None:
        os.close(self._hears)
        os.close(self._rings)


class Commit:
    """One piece of work of the thread. `error` is what it raised, and `took_s` how long it took, once `wait` has said
    True."""

    __slots__ = ("_done", "_work", "error", "took_s")

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._done = threading.Lock()
        self._done.acquire()
        self.error: BaseException | None = None
        self.took_s = 0.0

    def wait(self, timeout_s: float) -> bool:
        """Whether it is done, after at most that time. Lets go of the interpreter's lock."""
        if not self._done.acquire(timeout=timeout_s):
            return False
        self._done.release()
        return True

    def run(self) -> None:
        began = time.perf_counter()
        try:
            self._work()
        except BaseException as error:
            self.error = error
        finally:
            self.took_s = time.perf_counter() - began
            self._done.release()


class CommitThread:
    """Runs what it is given, in order, and rings `bell` behind each."""

    def __init__(self, name: str) -> None:
        self.bell = Bell()
        self._queue: SimpleQueue[Commit | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], object]) -> Commit:
        commit = Commit(work)
        self._queue.put(commit)
        return commit

    def close(self) -> None:
        """Return when everything submitted is done. Nobody may listen to the bell any more."""
        self._queue.put(None)
        self._thread.join()
        self.bell.close()

    def _run(self) -> None:
        while (commit := self._queue.get()) is not None:
            commit.run()
            self.bell.ring()
