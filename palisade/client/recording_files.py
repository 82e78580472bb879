"""The files of a recorder, written by a thread: `<client>-<number>.history`, rotated by size, the oldest removed.

A full or failing disk ends the recording, never the client: a warning in the log names the reason.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from palisade.client.recording import Recorder
from palisade.wire.recorded_history import SUFFIX, RecordingHeader

CLOSE_S = 5.0
"""How long a closing client waits for its files."""
_log = logging.getLogger(__name__)
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class Recording:
    """`Client(..., record=Recording("history"))`: where a client records its operations, and how much it keeps.

    At most `files_max` files of about `file_bytes_max` bytes for each client; then its oldest file is removed.
    """

    folder: str | Path
    file_bytes_max: int = 64 * 1024 * 1024
    files_max: int = 16

    def __post_init__(self) -> None:
        if self.file_bytes_max < 1 or self.files_max < 1:
            raise ValueError("file_bytes_max and files_max of a recording must be at least 1")


def open_recorder(recording: Recording, client: str) -> Recorder:
    """Raises OSError if the folder can't be created."""
    from palisade.vault.directory import read_boot_id  # imports LMDB, which other clients do not need

    Path(recording.folder).mkdir(parents=True, exist_ok=True)
    header = RecordingHeader(client, read_boot_id(), _clock_ns(), time.time_ns())
    return Recorder(HistoryFiles(recording, header), _clock_ns, time.time_ns)


def _clock_ns() -> int:
    return time.clock_gettime_ns(_CLOCK)


class HistoryFiles:
    """Chunks are written in their order, by a thread; each begins with a whole object."""

    def __init__(self, recording: Recording, header: RecordingHeader) -> None:
        self._recording, self._header = recording, header
        self._chunks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._queued = self._written = 0
        self._failed = False
        self._kept: list[Path] = []
        self._file: BinaryIO | None = None
        self._thread = threading.Thread(target=self._write_all, name="palisade-history", daemon=True)
        self._thread.start()

    @property
    def unwritten_bytes(self) -> int:
        return self._queued - self._written

    def write(self, chunk: bytes) -> None:
        if not self._failed:
            self._queued += len(chunk)
            self._chunks.put(chunk)

    def close(self) -> None:
        self._chunks.put(None)
        self._thread.join(CLOSE_S)

    def _write_all(self) -> None:
        try:
            while (chunk := self._chunks.get()) is not None:
                self._write(chunk)
                self._written += len(chunk)
        except OSError as error:
            self._failed = True
            _log.warning("recording ended, the client is not affected: client=%s reason=%s", self._header.client, error)
        finally:
            if self._file is not None:
                self._file.close()

    def _write(self, chunk: bytes) -> None:
        if self._file is None or self._file.tell() >= self._recording.file_bytes_max:
            self._file = self._next_file()
        self._file.write(chunk)
        self._file.flush()

    def _next_file(self) -> BinaryIO:
        if self._file is not None:
            self._file.close()
        number = 1 + (int(self._kept[-1].stem.rpartition("-")[2]) if self._kept else 0)
        path = Path(self._recording.folder, f"{quote(self._header.client, safe='')}-{number:06d}{SUFFIX}")
        self._kept.append(path)
        if len(self._kept) > self._recording.files_max:
            self._kept.pop(0).unlink(missing_ok=True)
        header = replace(self._header, clock_ns=_clock_ns(), wall_ns=time.time_ns())
        file = path.open("xb")
        file.write(header.packed())
        return file
