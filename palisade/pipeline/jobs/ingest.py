"""Raw events become segments: Parquet files by day or hour, published together (issue 18, P5)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from palisade.base.counted import counted
from palisade.catalog.errors import CatalogError
from palisade.catalog.row_format import a_name
from palisade.pipeline.cluster import connect
from palisade.pipeline.errors import BadOption
from palisade.pipeline.ingest import DEMO, Ingested, Source, ingest_source
from palisade.pipeline.ingest_rows import GRANULARITIES, within
from palisade.pipeline.job import Job, Progress, Report, option
from palisade.pipeline.local_folder import require_folder
from palisade.pipeline.options import ClusterAccess
from palisade.pipeline.segment_folder import folder_of


@dataclass(frozen=True, slots=True)
class IngestOptions:
    to: str = option("Folder of the segments' files, file:///...; all workers and data nodes must reach it.")
    input: str = option("Path of CSV or Parquet files that all workers reach. Default: the demo data.", "")
    data_source: str = option("Name of the data source. For the demo data: flights or weather; default: both.", "")
    time_column: str = option("Column with the time of a row: a timestamp, a date or ISO 8601 in UTC.", "")
    format: str = option("Format of the input.", "csv", choices=("csv", "parquet"))
    columns: str = option("Columns of CSV as a Spark schema: 'id BIGINT, at TIMESTAMP'. Default: inferred.", "")
    null_text: str = option("Text that means no value in CSV, besides the empty text.", "")
    granularity: str = option("Interval of a segment.", "day", choices=tuple(GRANULARITIES))
    start: str = option("Only rows from this time on, such as 2013-03-01.", "")
    end: str = option("Only rows before this time.", "")
    rows_max: int = option("Maximum rows of a segment; longer intervals are divided into partitions.", 250_000)
    rejects_max: int = option("Maximum number of rejected rows; with more, nothing is published.", 1_000)

    def __post_init__(self) -> None:
        """Raises BadOption."""
        folder_of(self.to, "", "")
        if self.input and not (self.data_source and self.time_column):
            raise BadOption("option input needs data_source and time_column")
        if not self.input and (self.data_source not in ("", *DEMO) or self.time_column or self.columns):
            raise BadOption(f"the demo data are {' and '.join(DEMO)}, with their columns: give option input for others")
        if self.rows_max < 1 or self.rejects_max < 0:
            raise BadOption("option rows_max is at least 1, rejects_max at least 0")
        try:
            if self.data_source:
                a_name(self.data_source, "data_source")
            within(self.start, self.end)
        except CatalogError as error:
            raise BadOption(str(error)) from None

    def sources(self) -> list[Source]:
        make = partial(
            Source,
            granularity=self.granularity,
            start=self.start,
            end=self.end,
            rows_max=self.rows_max,
            rejects_max=self.rejects_max,
        )
        if not self.input:
            return [make(name) for name in ([self.data_source] if self.data_source else DEMO)]
        return [
            make(
                self.data_source,
                path=self.input,
                format=self.format,
                time_column=self.time_column,
                columns=self.columns,
                null_text=self.null_text,
            )
        ]


def check(access: ClusterAccess, options: IngestOptions) -> None:
    require_folder(Path(folder_of(options.to, "", "").path))


def run(spark: Any, access: ClusterAccess, options: IngestOptions, progress: Progress) -> Report:
    with connect(access) as client:
        done = [ingest_source(spark, client, source, options.to, progress) for source in options.sources()]
    return Report({"data_sources": [each.as_dict() for each in done]}, "\n".join(map(text_of, done)))


def text_of(done: Ingested) -> str:
    rejects = f", {counted(done.rejected, 'row')} rejected: {' '.join(done.rejects)}" if done.rejected else ""
    segments = f"{counted(done.segments, 'segment')}, {done.published} of them published"
    return f"{done.data_source}: {counted(done.rows, 'row')} in {segments}{rejects}"


JOB = Job(
    "ingest",
    "Publish raw events as segments.\n\nEach day or hour of the input becomes Parquet files below --to. All segments "
    "of a data source become visible at one revision, and replace what was published for these intervals. An interval "
    "whose rows are published already is left as it is. Afterwards `palisade segments assign` gives them to data "
    "nodes.",
    IngestOptions,
    run,
    check=check,
)
