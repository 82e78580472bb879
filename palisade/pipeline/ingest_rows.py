"""Finds the interval of an input row, or the reason why it is rejected. As SQL for Spark. Pure.

Text columns are converted in Spark: a value that is not of its column's type rejects the row, with its original text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palisade.catalog.demo.tables import NO_VALUE, DemoTable, DemoType
from palisade.catalog.segment import moment_ms
from palisade.pipeline.errors import BadOption

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
GRANULARITIES = {"day": DAY_MS, "hour": HOUR_MS}
OWN = "__palisade_"
"""Prefix of the columns that a job adds."""
START, REASON, ROW, CORRUPT = OWN + "start", OWN + "reason", OWN + "row", OWN + "corrupt"
FIRST_MS, LAST_MS = moment_ms("0001-01-01"), moment_ms("9999-12-31")
"""Segments lie in these years (`catalog/segment.py`)."""
SPARK_TYPES = {
    DemoType.STRING: "STRING",
    DemoType.INT: "BIGINT",
    DemoType.DOUBLE: "DOUBLE",
    DemoType.TIMESTAMP: "TIMESTAMP",
}


@dataclass(frozen=True, slots=True)
class InputColumn:
    """`type`: of Spark, such as BIGINT. `nullable` False: a row without a value is rejected."""

    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class InputRows:
    """`time`: SQL of a timestamp over the converted columns; NULL if there is none. `null_text`: in text columns, a
    text that means "no value", besides the empty text. `is_text`: the columns are texts, to be converted."""

    columns: tuple[InputColumn, ...]
    time: str
    time_name: str
    is_text: bool = True
    null_text: str = ""


def rows_of_table(table: DemoTable) -> InputRows:
    """The days of the demo's tables are those in their year, month and day columns: local dates."""
    columns = tuple(InputColumn(each.name, SPARK_TYPES[each.kind], each.nullable) for each in table.columns)
    time = "try_cast(format_string('%04d-%02d-%02d', `year`, `month`, `day`) AS TIMESTAMP)"
    return InputRows(columns, time, "year, month, day", null_text=NO_VALUE)


def rows_by_column(columns: Sequence[InputColumn], time: str, *, is_text: bool, null_text: str) -> InputRows:
    """`time`: the name of a column. Raises BadOption."""
    found = {each.name: each.type for each in columns}
    if time not in found:
        raise BadOption(f"option time_column={time!r} is no column of the input; it has {', '.join(found)}")
    if own := [name for name in found if name.startswith(OWN)]:
        raise BadOption(f"column {own[0]} of the input begins with {OWN}: rename it")
    if found[time].upper() not in ("TIMESTAMP", "TIMESTAMP_NTZ", "DATE", "STRING"):
        raise BadOption(
            f"column {time} has the type {found[time]}; the time of a row is a timestamp, a date or ISO 8601"
        )
    return InputRows(tuple(columns), f"try_cast({quoted(time)} AS TIMESTAMP)", time, is_text, null_text)


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def text(value: str) -> str:
    """A SQL literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def has_value(rows: InputRows, column: InputColumn) -> str:
    """SQL: whether the text is a value, not "no value"."""
    name = quoted(column.name)
    if column.type.upper() == "STRING" and not column.nullable:
        return "true"
    none = "" if not rows.null_text or not column.nullable else f" AND {name} <> {text(rows.null_text)}"
    return f"({name} IS NOT NULL AND {name} <> ''{none})"


def converted(rows: InputRows, column: InputColumn) -> str:
    name = quoted(column.name)
    return f"CASE WHEN {has_value(rows, column)} THEN try_cast({name} AS {column.type}) END"


def reason_of_column(rows: InputRows, column: InputColumn) -> str:
    """SQL: the reason, or NULL."""
    name = quoted(column.name)
    wrong = f"concat({text(column.name + ': ')}, coalesce({name}, 'nothing'), {text(' is not ' + column.type)})"
    missing = f"{has_value(rows, column)} AND " if column.nullable else ""
    return f"CASE WHEN {missing}({converted(rows, column)}) IS NULL THEN {wrong} END"


def typed_columns(rows: InputRows) -> list[str]:
    """First step, over the input: the converted columns, the original row of rejected ones, and the reason."""
    names = [quoted(each.name) for each in rows.columns]
    if not rows.is_text:
        return [*names, f"CAST(NULL AS STRING) AS {REASON}", f"CAST(NULL AS STRING) AS {ROW}"]
    reasons = [f"CASE WHEN {CORRUPT} IS NOT NULL THEN 'another number of fields than the header' END"]
    reasons += [reason_of_column(rows, each) for each in rows.columns]
    return [
        *(f"{converted(rows, each)} AS {quoted(each.name)}" for each in rows.columns),
        f"coalesce({', '.join(reasons)}) AS {REASON}",
        f"coalesce({CORRUPT}, to_json(struct({', '.join(names)}))) AS {ROW}",
    ]


def with_time(rows: InputRows) -> list[str]:
    """Second step: the time of the row in milliseconds as START; without one, a reason."""
    names = [quoted(each.name) for each in rows.columns]
    outside = f"coalesce({START} NOT BETWEEN {FIRST_MS} AND {LAST_MS}, true)"
    missing = text(f"{rows.time_name}: no time in the years 1 to 9999")
    row = f"coalesce({ROW}, to_json(struct({', '.join(names)})))"
    return [
        *names,
        START,
        f"coalesce({REASON}, CASE WHEN {outside} THEN {missing} END) AS {REASON}",
        f"{row} AS {ROW}",
    ]


def bucket(granularity: str) -> str:
    """SQL: the start of the interval, in milliseconds; NULL for rejected rows."""
    width = GRANULARITIES[granularity]
    return f"CASE WHEN {REASON} IS NULL THEN {START} - pmod({START}, {width}) END"


def within(start: str, end: str) -> str:
    """SQL: whether the row is in the interval, or rejected. Raises BadOption, BadField."""
    bounds = [f"{START} >= {moment_ms(start)}"] if start else []
    bounds += [f"{START} < {moment_ms(end)}"] if end else []
    return f"({REASON} IS NOT NULL OR ({' AND '.join(bounds)}))" if bounds else "true"
