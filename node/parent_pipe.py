"""Ends a child process when its supervisor ends for any reason (kill -9 included).

The supervisor keeps the write end of a pipe open and never writes; the child has the read end. When the supervisor is
gone, the kernel closes the write end and the read returns. A thread waits for it, so that even a child with a hanging
event loop ends: SIGTERM first, a forced exit `GRACE_S` later.
"""

from __future__ import annotations

import os
import signal
import threading
import time

GRACE_S = 10.0


def watch_parent(pipe: int) -> None:
    """Stop this process when the other end of `pipe`, a file descriptor, is closed. Raises OSError if it is no open
    descriptor."""
    os.fstat(pipe)
    os.set_inheritable(pipe, False)
    threading.Thread(target=_wait, args=(pipe,), name="parent-watch", daemon=True).start()


def _wait(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)
