"""Keys and values in messages: text if they are text, else hexadecimal with 0x. Never as Python literals. Pure."""

from __future__ import annotations

SHOWN_MAX, WHOLE_MAX = 64, 256
"""Maximum bytes that are shown of a key. `WHOLE_MAX`: where the name of a segment (up to about 200 bytes) must fit."""


def key_text(key: bytes, shown_max: int = SHOWN_MAX) -> str:
    """'/config/mode' or '0xff00'; the first `shown_max` bytes, and "..." if there are more."""
    shown = key[:shown_max]
    more = "..." if len(key) > shown_max else ""
    for cut in range(4 if more else 1):
        try:
            text = shown[: len(shown) - cut].decode()
        except UnicodeDecodeError:
            continue
        if text.isprintable() and text:
            return text + more
        break
    return f"0x{shown.hex()}{more}"
