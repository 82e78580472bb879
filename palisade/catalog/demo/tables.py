"""The tables of the demo catalog: their columns and types. Pure, and checked against the data by the tests.

Rows are lists of texts as in the files; `NA` means "no value".
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from palisade.base.counted import counted

NO_VALUE = "NA"


class DemoType(enum.Enum):
    """What a text in a column means. `TIMESTAMP` is ISO 8601 in UTC."""

    STRING = "string"
    INT = "int"
    DOUBLE = "double"
    TIMESTAMP = "timestamp"

    def read(self, text: str) -> str | int | float:
        """Raises ValueError when the text is not of this kind."""
        if self is DemoType.INT:
            return int(text)
        if self is DemoType.DOUBLE:
            return float(text)
        if self is DemoType.TIMESTAMP and not (len(text) == 20 and text[10] == "T" and text[-1] == "Z"):
            raise ValueError(f"{text!r} is not a time such as 2013-01-01T10:00:00Z")
        return text


@dataclass(frozen=True, slots=True)
class DemoColumn:
    name: str
    kind: DemoType
    nullable: bool = False

    def read(self, text: str) -> str | int | float | None:
        if text == NO_VALUE and self.nullable:
            return None
        return self.kind.read(text)


@dataclass(frozen=True, slots=True)
class DemoTable:
    """`key` names the column that identifies a row, for tables whose rows are catalog entries of their own.

    Tables without a key have one segment per day, by their year, month and day columns.
    """

    name: str
    columns: tuple[DemoColumn, ...]
    key: str | None = None

    @property
    def header(self) -> list[str]:
        return [column.name for column in self.columns]

    def record(self, row: Sequence[str]) -> dict[str, str | int | float | None]:
        """Column -> value. Raises ValueError that names the column."""
        if len(row) != len(self.columns):
            raise ValueError(
                f"{self.name}: a row has {counted(len(row), 'field')} instead of {len(self.columns)}: {row}"
            )
        record = {}
        for column, text in zip(self.columns, row, strict=True):
            try:
                record[column.name] = column.read(text)
            except ValueError as error:
                raise ValueError(f"{self.name}.{column.name}: {error}") from None
        return record


def _columns(**kinds: str) -> tuple[DemoColumn, ...]:
    """`name=kind` in order; a '?' after the kind: the value may be missing."""
    return tuple(DemoColumn(name, DemoType(kind.rstrip("?")), kind.endswith("?")) for name, kind in kinds.items())


AIRLINES = DemoTable("airlines", _columns(carrier="string", name="string"), key="carrier")
AIRPORTS = DemoTable(
    "airports",
    _columns(
        faa="string",
        name="string",
        lat="double",
        lon="double",
        alt="int",
        tz="int",
        dst="string",
        tzone="string?",
    ),
    key="faa",
)
PLANES = DemoTable(
    "planes",
    _columns(
        tailnum="string",
        year="int?",
        type="string",
        manufacturer="string",
        model="string",
        engines="int",
        seats="int",
        speed="int?",
        engine="string",
    ),
    key="tailnum",
)
FLIGHTS = DemoTable(
    "flights",
    _columns(
        year="int",
        month="int",
        day="int",
        dep_time="int?",
        sched_dep_time="int",
        dep_delay="int?",
        arr_time="int?",
        sched_arr_time="int",
        arr_delay="int?",
        carrier="string",
        flight="int",
        tailnum="string?",
        origin="string",
        dest="string",
        air_time="int?",
        distance="int",
        hour="int",
        minute="int",
        time_hour="timestamp",
    ),
)
WEATHER = DemoTable(
    "weather",
    _columns(
        origin="string",
        year="int",
        month="int",
        day="int",
        hour="int",
        temp="double?",
        dewp="double?",
        humid="double?",
        wind_dir="int?",
        wind_speed="double?",
        wind_gust="double?",
        precip="double",
        pressure="double?",
        visib="double",
        time_hour="timestamp",
    ),
)
TABLES = (AIRLINES, AIRPORTS, PLANES, FLIGHTS, WEATHER)
