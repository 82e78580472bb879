"""Splits a stream of JSON objects. Pure.

Every byte is examined once, whatever the sizes of the pieces: a client that sends a message byte by byte costs no more
than one that sends it whole. The reader of an object checks that it is JSON. Objects that are nested deeper than any
message are refused where the nesting exceeds the limit: counting 200 KB of braces would take 80 ms.
"""

from __future__ import annotations

import re

from palisade.api.http.protobuf_json import BadJson

MARKS = re.compile(rb'["\\{}]')
QUOTE, BACKSLASH, OPENING = b'"\\{'
DEPTH_MAX = 100


class ObjectCutter:
    """`rest`: the bytes after the last complete object; perhaps the beginning of the next one."""

    def __init__(self) -> None:
        self.rest = bytearray()
        self._seen = 0
        self._depth = 0
        self._in_text = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The objects that end in this piece, each with the bytes in front of it. Raises BadJson for one that is nested
        too deeply."""
        self.rest += piece
        found: list[bytes] = []
        while (end := self._next_end()) is not None:
            found.append(bytes(self.rest[:end]))
            del self.rest[:end]
            self._seen = self._depth = 0
        return found

    def _next_end(self) -> int | None:
        """Where the object that has begun ends; None if it does not end in the bytes so far."""
        while (match := MARKS.search(self.rest, self._seen)) is not None:
            mark, self._seen = match[0][0], match.end()
            if self._in_text:
                if mark == BACKSLASH:
                    self._seen += 1
                elif mark == QUOTE:
                    self._in_text = False
            elif mark == QUOTE:
                self._in_text = True
            elif mark == OPENING:
                self._depth += 1
                if self._depth > DEPTH_MAX:
                    raise BadJson("invalid JSON: nested too deeply")
            elif mark != BACKSLASH:
                self._depth -= 1
                if self._depth <= 0:
                    return self._seen
        self._seen = max(self._seen, len(self.rest))
        return None
