"""Keys and values as programs give them: bytes, or text, which is encoded as UTF-8."""

from __future__ import annotations

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


def bounds(start: Content, end: Content | None) -> tuple[bytes, bytes | None]:
    """(start, end) of a range as bytes."""
    return as_bytes(start), None if end is None else as_bytes(end)
