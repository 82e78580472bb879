"""Types of columns and time series, their encodings (as in Apache IoTDB), and the allowed type changes, which preserve
every value. Pure.
"""

from __future__ import annotations

from palisade.catalog.errors import BadField

NUMBERS = ("int32", "int64", "float", "double", "timestamp", "date")
TEXTS = ("text", "string", "blob")
TYPES = ("boolean", *NUMBERS, *TEXTS)
ENCODINGS_OF = {
    "boolean": ("plain", "rle"),
    **dict.fromkeys(
        ("int32", "int64", "timestamp", "date"), ("plain", "rle", "ts_2diff", "gorilla", "zigzag", "chimp")
    ),
    **dict.fromkeys(("float", "double"), ("plain", "rle", "ts_2diff", "gorilla", "chimp")),
    **dict.fromkeys(("text", "string"), ("plain", "dictionary")),
    "blob": ("plain",),
}
ENCODINGS = tuple(dict.fromkeys(each for encodings in ENCODINGS_OF.values() for each in encodings))
COMPRESSIONS = ("uncompressed", "snappy", "lz4", "gzip", "zstd", "lzma2")
WIDER = {
    "boolean": ("text", "string"),
    "int32": ("int64", "double", "text", "string"),
    "int64": ("timestamp", "text", "string"),
    "float": ("double", "text", "string"),
    "double": ("text", "string"),
    "timestamp": ("int64", "text", "string"),
    "date": ("text", "string"),
    "text": ("string", "blob"),
    "string": ("text", "blob"),
    "blob": (),
}


def check_encoding(kind: str, encoding: str, place: str) -> None:
    if encoding not in ENCODINGS_OF[kind]:
        raise BadField(f"{place}: {encoding} does not fit {kind}: use one of {', '.join(ENCODINGS_OF[kind])}")


def check_widening(before: str, after: str, place: str) -> None:
    if after not in WIDER[before]:
        allowed = ", ".join(WIDER[before]) or "nothing"
        raise BadField(f"{place}: {before} cannot become {after} without losing values; it can become {allowed}")
