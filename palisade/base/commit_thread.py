"""One thread for what waits for the disk, so that a slow disk stops nothing else - and how to learn that it is done.

A commit takes about 0.2 ms on a good disk and seconds on a bad day. The thread keeps the event loop out of the bad day.
On a good one it should not cost much either:

- A loop with little else to do waits for the thread, for at most `PATIENCE_S`: to be woken up costs half as much again
  as the commit. Once a commit took longer, the loop does not wait again before a quick one was seen.
- A loop with much to do (`BusyMeter`) goes on, since it would serve nobody meanwhile. The thread rings a bell, which
  the loop hears as it hears a socket.

A thread that wants the interpreter's lock while the loop is busy may starve: a loop that lets go of the lock and takes
it again every few microseconds (each system call does) may win every race. Seen: 2 s and more for a commit of 0.25 ms.
So nobody relies on the bell: the loop also asks every `POLL_S`, and lets go of the lock for `YIELD_S` when it does.

Work for which nobody waits (a flush of the store) needs no bell: `DiskThread.run` asks only, every `RUN_POLL_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

PATIENCE_S = 0.002
POLL_S = 0.001
RUN_POLL_S = 0.002
YIELD_S = 0.0002
BUSY = 0.3
START_S = 0.00005
"""For that long a loop that has handed over work lets go of the lock, so that the work begins."""

T = TypeVar("T")


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


class CommitTask:
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


class DiskThread:
    """Runs what it is given, in order."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[CommitTask | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], object]) -> CommitTask:
        if self._closed:
            raise RuntimeError(f"the thread {self._thread.name} is closed")
        commit = CommitTask(work)
        self._queue.put(commit)
        return commit

    async def run(self, work: Callable[[], T]) -> T:
        """The work's result. It is done to its end also when the caller is cancelled."""
        results: list[T] = []
        commit = self.submit(lambda: results.append(work()))
        while not commit.wait(YIELD_S):  # noqa: ASYNC110 - the thread must not call back
            await asyncio.sleep(RUN_POLL_S)
        if commit.error is not None:
            raise commit.error
        return results[0]

    def close(self) -> None:
        """Return when everything submitted is done."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (commit := self._queue.get()) is not None:
            commit.run()
            self._on_done()

    def _on_done(self) -> None:
        """Called in the thread after each piece of work."""


class CommitThread(DiskThread):
    """A `DiskThread` that rings `bell` after each piece of work."""

    def __init__(self, name: str) -> None:
        self.bell = Bell()
        super().__init__(name)

    def close(self) -> None:
        """Return when everything submitted is done. Nobody may listen to the bell any more."""
        super().close()
        self.bell.close()

    def _on_done(self) -> None:
        self.bell.ring()
