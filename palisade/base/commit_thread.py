"""One thread for operations that wait for the disk, and how the event loop detects their end.

A commit takes about 0.2 ms on a good disk, and seconds on a bad one. The thread keeps a slow commit from blocking the
event loop. A quick commit should not cost much either:

- A loop with little else to do waits in place, for at most `PATIENCE_S`: a wake-up costs half as much again as the
  commit. After a slow commit it does not wait again until it has seen a quick one.
- A busy loop (`BusyMeter`) continues at once. The thread wakes it through a pipe (`Bell`), which the loop polls like a
  socket. A commit that ends while the loop waits in place writes nothing to the pipe.

A thread that needs the interpreter's lock may starve while the loop is busy: a loop that releases and takes the lock
every few microseconds, as each system call does, may win every race. Observed: 2 s and more for a commit of 0.25 ms.
Therefore the loop also polls every `POLL_S`, and releases the lock for `YIELD_S` when it does.

`LoopCommits` follows these rules. Work that is not urgent (a flush of the store) needs no pipe: `DiskThread.run` polls
every `RUN_POLL_S`.
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
"""Time for which a loop releases the lock after it has submitted work, so that the work begins."""

T = TypeVar("T")


class BusyMeter:
    """Whether the calling thread worked for more than `BUSY` of the time since its last call. Waiting in place for a
    commit counts as idle."""

    def __init__(
        self, worked_s: Callable[[], float] = time.thread_time, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._read_worked_s, self._now = worked_s, now
        self._worked_s, self._at = worked_s(), now()

    def busy(self) -> bool:
        worked_s, at = self._worked_s, self._at
        self._worked_s, self._at = self._read_worked_s(), self._now()
        return self._worked_s - worked_s > BUSY * (self._at - at)


class Bell:
    """A pipe: `ring`, from any thread, makes its `fileno` readable until `hush`."""

    def __init__(self) -> None:
        self._wakeup_read, self._wakeup_write = os.pipe()
        os.set_blocking(self._wakeup_read, False)
        os.set_blocking(self._wakeup_write, False)

    def fileno(self) -> int:
        return self._wakeup_read

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wakeup_write, b"!")

    def hush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup_read, 4096)

    def close(self) -> None:
        os.close(self._wakeup_read)
        os.close(self._wakeup_write)


class CommitTask:
    """One piece of work of the thread. Valid once `wait` has returned True: `error`, the exception that it raised, and
    `took_s`, its duration. `is_polled`: a `wait` has returned False, so the end must be announced."""

    __slots__ = ("_done", "_work", "error", "is_polled", "took_s")

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._done = threading.Lock()
        self._done.acquire()
        self.error: BaseException | None = None
        self.took_s = 0.0
        self.is_polled = False

    def wait(self, timeout_s: float) -> bool:
        """Whether it is done, after at most that time. Releases the interpreter's lock.

        The order of the two steps after the timeout matters: `run` ends first and reads `is_polled` afterwards.
        """
        if not self._done.acquire(timeout=timeout_s):
            self.is_polled = True
            if not self._done.acquire(blocking=False):
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
    """Runs submitted work in order."""

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
        """The work's result. The work continues to its end if the caller is cancelled."""
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
            self._on_done(commit)

    def _on_done(self, commit: CommitTask) -> None:
        """Called in the thread after each piece of work."""


class CommitThread(DiskThread):
    """A `DiskThread` that writes to the pipe `bell` after each piece of work that is polled."""

    def __init__(self, name: str) -> None:
        self.bell = Bell()
        super().__init__(name)

    def close(self) -> None:
        """Return when everything submitted is done. `bell` must not be in use any more."""
        super().close()
        self.bell.close()

    def _on_done(self, commit: CommitTask) -> None:
        if commit.is_polled:
            self.bell.ring()


class LoopCommits:
    """Commits of one event loop, one at a time, in a thread of their own. `patience_s`: for how long an idle loop waits
    in place for a commit."""

    def __init__(self, name: str, patience_s: float = PATIENCE_S) -> None:
        self._thread = CommitThread(name)
        self._patience_s = patience_s
        self._meter = BusyMeter()
        self._quick = True
        """The last commit ended within `patience_s`."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that polls the thread's pipe."""
        self._poll: asyncio.TimerHandle | None = None
        self._commit: tuple[CommitTask, Callable[[BaseException | None], None]] | None = None
        self._closed = False

    def begin(self, commit: Callable[[], object], ended: Callable[[BaseException | None], None]) -> None:
        """Run `commit` in the thread, then call `ended` in the loop, with the error or None; perhaps before this
        returns. The next one begins after the end of this one."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._listen_in(loop)
        self._commit = self._thread.submit(commit), ended
        self._look(START_S if self._meter.busy() or not self._quick else self._patience_s)
        if self._commit is not None and self._poll is None:
            self._poll = loop.call_later(POLL_S, self._polled)

    def close(self) -> None:
        """Return when the commit in progress is done; its `ended` is not called."""
        self._closed = True
        self._listen_in(None)
        self._thread.close()

    def _listen_in(self, loop: asyncio.AbstractEventLoop | None) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._thread.bell)
        self._loop = loop
        if loop is not None:
            loop.add_reader(self._thread.bell, self._rung)

    def _rung(self) -> None:
        self._thread.bell.hush()
        self._look(0.0)

    def _polled(self) -> None:
        """One timer while commits are in progress, not one per commit."""
        self._poll = None
        self._look(YIELD_S)
        if self._commit is not None and self._poll is None and self._loop is not None and not self._closed:
            self._poll = self._loop.call_later(POLL_S, self._polled)

    def _look(self, patience_s: float) -> None:
        """End the commit if it is done, or is done within `patience_s`."""
        if self._commit is None or self._closed:
            return
        task, ended = self._commit
        if task.wait(patience_s):
            self._commit = None
            self._quick = task.took_s < self._patience_s
            ended(task.error)
