"""Keys and values as programs give them: bytes, or text, which is encoded as UTF-8."""

from __future__ import annotations

import base64

Content = bytes | bytearray | memoryview | str


def as_bytes(content: Content) -> bytes:
    """Raises TypeError for anything that is neither bytes nor text."""
    if type(content) is bytes:
        return content
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"a key or value must be bytes or text, not {type(content).__name__}")


LIMIT_MAX = (1 << 63) - 1


def bounds(start: Content, end: Content | None, limit: int = 0) -> tuple[bytes, bytes | None]:
    """(start, end) of a range as bytes. Raises TypeError, or ValueError for a `limit` that is no number of keys."""
    if not isinstance(limit, int):
        raise TypeError(f"limit must be a whole number, not {type(limit).__name__}")
    if not 0 <= limit <= LIMIT_MAX:
        raise ValueError(f"limit must be 0 (all keys) to {LIMIT_MAX}")
    return as_bytes(start), None if end is None else as_bytes(end)


def from_base64(text: str) -> bytes:
    """Raises ValueError, whose text follows the name of a field."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        alphabet = "letters, digits, + and /, then = up to a multiple of 4 characters"
        raise ValueError(f"is not base64: {text!r:.60}; give {alphabet}") from None
