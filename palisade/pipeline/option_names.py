"""The names of the options of `format("palisade")`, and the kinds of reads and writes that use them. Pure.

An option without effect is refused, so that a read never differs silently from the request. Names have any case,
as in Spark.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from palisade.pipeline.errors import BadOption

NUMBER_MAX = (1 << 63) - 1


class OptionUse(enum.Enum):
    STATE = "reads of a state"
    HISTORY = "reads of the history"
    STREAM = "streaming reads, which have startingRevision"
    TABLE = "reads of a table"
    WRITE = "writes"
    STREAM_WRITE = "streaming writes"


_ACCESS = ("endpoints", "tokenFile", "user", "passwordFile", "timeoutMs")
_KEYS = ("prefix", "keyFrom", "keyTo")
_ROWS = ("columns", "keyType", "valueType", "valueSchema", "mode", "numPartitions", "partitionRows", "pinMs")
_VAULTS = ("vaults", "vaultOnly")
_WRITE = (*_ACCESS, "prefix", "rejectsPrefix", "stageMs")
OPTIONS = {
    OptionUse.STATE: (*_ACCESS, *_KEYS, *_ROWS, "revision", "history", *_VAULTS),
    OptionUse.HISTORY: (*_ACCESS, *_KEYS, *_ROWS, "history", "fromRevision", "toRevision"),
    OptionUse.STREAM: (
        *_ACCESS, *_KEYS, *_ROWS, "startingRevision", "maxRowsPerBatch", "maxBytesPerBatch", "onCompacted", *_VAULTS,
    ),
    OptionUse.TABLE: (*_ACCESS, "table", "interval", "columns"),
    OptionUse.WRITE: _WRITE,
    OptionUse.STREAM_WRITE: (*_WRITE, "recordPrefix"),
}  # fmt: skip
KNOWN = tuple(dict.fromkeys(name for names in OPTIONS.values() for name in names))
OF_SPARK = ("checkpointlocation", "queryname")
"""In lower case: options of every source and sink that Spark passes on."""
NO_TABLE = (
    "Spark does not pass the options of a table in its catalog to reads and writes: use spark.read, CREATE TEMPORARY "
    "VIEW ... USING palisade OPTIONS (...), or df.write"
)
REFUSED = {
    "provider": f"CREATE TABLE ... USING palisade is not possible: {NO_TABLE}",
    "path": "a path, as of load(path), save(path) or start(path), has no meaning here: give keys by option prefix, or "
    "keyFrom and keyTo",
}
"""In lower case. A provider is passed only with a table of Spark's catalog, together with properties of its own."""
CREDENTIALS = ("password", "token", "credentials")


class NamedOptions:
    """Options by name. Raises BadOption for unknown names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        names = {name.lower(): name for name in KNOWN}
        for name, reason in REFUSED.items():
            if name in map(str.lower, options):
                raise BadOption(reason)
        self._values: dict[str, str] = {}
        for name, value in options.items():
            if name.lower() in OF_SPARK:
                continue
            if name.lower() in CREDENTIALS:
                raise BadOption(
                    f"option {name}: options are visible in logs; put it in a file and give tokenFile or passwordFile"
                )
            if name.lower() not in names:
                raise BadOption(f"option {name} is unknown; known are {', '.join(KNOWN)}")
            self._values[names[name.lower()]] = value

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def require(self, use: OptionUse) -> None:
        """Raises BadOption for an option that has no effect there."""
        for name in self._values:
            if name not in OPTIONS[use]:
                uses = "; ".join(each.value for each, names in OPTIONS.items() if name in names)
                raise BadOption(f"option {name} has no effect on {use.value}: omit it. It is for {uses}")

    def text(self, name: str) -> str:
        return self._values.get(name, "")

    def number(self, name: str, default: int, *, least: int = 0, most: int = NUMBER_MAX) -> int:
        text = self._values.get(name, str(default))
        if not text.isdecimal() or not least <= int(text) <= most:
            raise BadOption(f"option {name}={text!r} is not a number from {least} to {most}")
        return int(text)

    def choice(self, name: str, default: str, known: tuple[str, ...]) -> Any:
        text = self._values.get(name, default).lower()
        if text not in known:
            raise BadOption(f"option {name}={text!r} is not one of {', '.join(known)}")
        return text
