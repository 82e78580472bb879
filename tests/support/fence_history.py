"""Whether a history of fenced reads of one key is linearizable: its value only grows, with one writer at a time.

A read must not be older than any write that was acknowledged before it began (stale), nor older than any earlier read
on any node (new-then-old; issue 4, "Shown by", 2).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.support.ordered_answers import Answer, overtaken


def violations(reads: Sequence[Answer], answered: Iterable[Answer]) -> list[str]:
    """Each read that returned less than an earlier result."""
    return [
        f"{read.by} read {read.value} at {read.began:.6f}, {known.value} had been returned by {known.by} "
        f"at {known.ended:.6f}"
        for read, known in overtaken(reads, [*reads, *answered])
    ]


def reads_of(text: str, by: str) -> tuple[list[Answer], list[tuple[float, str]]]:
    """(the reads that returned a value, the others by time) in the output of `fence_reader`, without a torn last
    line."""
    answers, other = [], []
    for line in text.splitlines(keepends=True):
        fields = line.split()
        if not line.endswith("\n") or len(fields) != 3:
            continue
        if fields[2].isdigit():
            answers.append(Answer(float(fields[0]), float(fields[1]), int(fields[2]), by))
        else:
            other.append((float(fields[0]), fields[2]))
    return answers, other


class ReadSoFar:
    """The output of one `fence_reader`, parsed as far as it is written; each line is parsed once."""

    def __init__(self, file: Path, by: str) -> None:
        self._file, self._by, self._offset = file, by, 0
        self._found: tuple[list[Answer], list[tuple[float, str]]] = ([], [])

    def now(self) -> tuple[list[Answer], list[tuple[float, str]]]:
        """Empty before the reader has made its file."""
        with contextlib.suppress(FileNotFoundError), self._file.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
            text = text[: text.rfind(b"\n") + 1]
            self._offset += len(text)
            answers, other = reads_of(text.decode("ascii"), self._by)
            self._found[0].extend(answers)
            self._found[1].extend(other)
        return self._found

    def forget(self, before: float) -> None:
        """Drops what ended before that time and has been checked."""
        answers, other = self._found
        del answers[: sum(each.ended < before for each in answers)]
        del other[: sum(at < before for at, _ in other)]
