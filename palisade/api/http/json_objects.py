"""A stream of JSON objects, cut where each of them ends. Pure.

Every byte is looked at once, in whatever pieces it arrives: a client that sends a message byte by byte costs no more
than one that sends it whole. Whether what was cut out is JSON is for whoever reads it to say; but what is nested deeper
than any message is refused where it begins: to count 200 KB of braces takes 80 ms.
"""

from __future__ import annotations

import re

from palisade.api.http.protobuf_json import BadJson

MARKS = re.compile(rb'["\\{}]')
QUOTE, BACKSLASH, OPENING = b'"\\{'
DEPTH_MAX = 100


class ObjectCutter:
    """`rest` is what has come behind the last end: perhaps the beginning of an object, perhaps none at all."""

    def __init__(self) -> None:
        self.rest = bytearray()
        self._seen = 0
        self._depth = 0
        self._in_text = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The objects that end in this piece, each with whatever stands in front of it. Raises BadJson for one that is
        nested too deeply."""
        self.rest += piece
        found: list[bytes] = []
        while (end := self._next_end()) is not None:
            found.append(bytes(self.rest[:end]))
            del self.rest[:end]
            self._seen = self._depth = 0
        return found

    def _next_end(self) -> int | None:
        """Where the object ends that is under way; None: not in what has come so far."""
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
