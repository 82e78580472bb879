"""msgpack frames between members, and between clients of the stream and a node.

    length  u32, big-endian: how many bytes follow it
    kind    u8
    crc32   u32, big-endian: over kind and body
    body    one msgpack value

Guarantees for any input: a frame longer than allowed is refused on its length alone, before any of it is kept. A frame
that does not match its checksum, or is not exactly one msgpack value of plain types, is never passed on. Thus a sender
can make a node keep at most one frame of the allowed size, and a nested, oversized or truncated body causes only a
refusal: every length in it is checked against the size of the frame, msgpack limits nesting, map keys are strings or
bytes, and extension types are not accepted.

After an error the parser is unusable, because the start of the next frame is unknown: close the connection.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import msgpack

from palisade.base.errors import PalisadeError

FRAME_BYTES_MAX = 64 * 1024 * 1024
ITEMS_MAX = 1 << 20

_HEADER = struct.Struct(">IBI")
_LENGTH = struct.Struct(">I")
_AFTER_LENGTH = _HEADER.size - _LENGTH.size
_CRC_OF_KIND = tuple(zlib.crc32(bytes((kind,))) for kind in range(256))


class FrameError(PalisadeError):
    """Root: the received bytes are not a valid frame. Close the connection."""

    code = "bad-frame"


class FrameTooLarge(FrameError):
    """A frame announces more bytes than allowed. None of it was kept."""

    def __init__(self, announced_bytes: int, bytes_max: int) -> None:
        super().__init__(f"a frame announces {announced_bytes} bytes, {bytes_max} are allowed")
        self.announced_bytes = announced_bytes
        self.bytes_max = bytes_max


def is_http(error: FrameError) -> bool:
    """Whether the bytes read as the length of a frame are the beginning of an HTTP response."""
    return isinstance(error, FrameTooLarge) and error.announced_bytes == int.from_bytes(b"HTTP")


class FrameCorrupt(FrameError):
    """Not a frame, altered on the way, or not one msgpack value of plain types."""


class Encoder:
    """Creates frames. Not thread-safe: it reuses its buffer for speed."""

    __slots__ = ("_pack",)

    def __init__(self) -> None:
        self._pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack

    def encode(self, kind: int, body: Any) -> bytes:
        """One frame. `kind` is 0 to 255; `body` consists of msgpack types.

        Raises TypeError, ValueError or OverflowError for any other body, which is an error of the caller.
        """
        packed: bytes = self._pack(body)
        return _HEADER.pack(len(packed) + _AFTER_LENGTH, kind, zlib.crc32(packed, _CRC_OF_KIND[kind])) + packed


def encode(kind: int, body: Any) -> bytes:
    """One frame, from any thread. `Encoder.encode` does the same faster."""
    return Encoder().encode(kind, body)


class FrameParser:
    """Bytes in, in pieces of any size; frames out, as (kind, body), in order.

    `frame_bytes_max` counts what follows the length; it may be changed between two calls of `feed`.
    """

    __slots__ = ("_items_max", "_rest", "_waiting_for", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, items_max: int = ITEMS_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._items_max = items_max
        self._rest = bytearray()
        self._waiting_for = 0

    @property
    def kept_bytes(self) -> int:
        """The size of the unfinished frame that is kept."""
        return len(self._rest)

    def feed(self, data: bytes | bytearray | memoryview) -> list[tuple[int, Any]]:
        """The frames that are now complete. Raises FrameTooLarge, FrameCorrupt; frames of this call are lost then."""
        rest = self._rest
        if not rest:
            frames, end = self._parse(data)
            if end < len(data):
                rest += data[end:] if end else data
            return frames
        rest += data
        if len(rest) < self._waiting_for:
            return []
        view = memoryview(rest)
        frames, end = self._parse(view)
        view.release()
        del rest[:end]
        return frames

    def _parse(self, data: bytes | bytearray | memoryview) -> tuple[list[tuple[int, Any]], int]:
        """The complete frames of `data`, and the offset of the first incomplete one."""
        frames: list[tuple[int, Any]] = []
        append, unpack_header, crc32, crc_of_kind = frames.append, _HEADER.unpack_from, zlib.crc32, _CRC_OF_KIND
        unpackb, items_max, bytes_max = msgpack.unpackb, self._items_max, self.frame_bytes_max
        start, size = 0, len(data)
        while size - start >= 9:
            length, kind, crc = unpack_header(data, start)
            end = start + 4 + length
            if length > bytes_max or length < 6:
                raise _bad_length(length, bytes_max)
            if end > size:
                self._waiting_for = end - start
                return frames, start
            body = data[start + 9 : end]
            if crc32(body, crc_of_kind[kind]) != crc:
                raise FrameCorrupt(f"the checksum of a frame of kind {kind} and {length} bytes does not match")
            try:
                append((kind, unpackb(body, max_array_len=items_max, max_ext_len=0, ext_hook=_refuse_extension)))
            except (ValueError, TypeError, OverflowError, MemoryError, RecursionError) as error:
                raise FrameCorrupt(f"the body of a frame of kind {kind} can't be read: {_in_short(error)}") from None
            start = end
        self._waiting_for = 9
        if size - start >= 4:
            (length,) = _LENGTH.unpack_from(data, start)
            if length > bytes_max or length < 6:
                raise _bad_length(length, bytes_max)
        return frames, start


def _bad_length(length: int, bytes_max: int) -> FrameError:
    if length > bytes_max:
        return FrameTooLarge(length, bytes_max)
    return FrameCorrupt(f"a frame announces {length} bytes, which is less than a kind, a checksum and a body")


def _refuse_extension(code: int, _data: bytes) -> Any:
    raise ValueError(f"msgpack extension type {code} is not used here")


def _in_short(error: Exception) -> str:
    """Shortened: the text may quote hostile bytes of any length."""
    return (str(error) or type(error).__name__)[:200]
