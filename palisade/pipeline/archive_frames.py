"""The tables of an archive as DataFrames: changes, versions of keys, the state at a revision.

Keys and values are stored as bytes, so every key of the store can be archived. A version is valid from the revision
that wrote it up to, but not including, the revision that replaced or deleted it. `valid_from_time` is null for versions
that are older than the archive: the state at its base has no times.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VERSION = "key BINARY, value BINARY, create_revision BIGINT, version BIGINT, lease BIGINT"
CHANGES = (
    "key BINARY, value BINARY, revision BIGINT, sub BIGINT, create_revision BIGINT, version BIGINT, lease BIGINT, "
    "timestamp TIMESTAMP, op STRING, previous_value BINARY"
)
CURRENT = f"{VERSION}, valid_from_revision BIGINT, valid_from_time TIMESTAMP"
VERSIONS = f"{CURRENT}, valid_to_revision BIGINT, valid_to_time TIMESTAMP"
SCHEMAS = {"changes": CHANGES, "current": CURRENT, "versions": VERSIONS}
OPEN, ENDED = "ended=false", "ended=true"


class Frames:
    """`source`: options of `format("palisade")`. Folders are named relative to `root`."""

    def __init__(self, spark: Any, root: Path, source: dict[str, str]) -> None:
        self._spark, self._root = spark, root
        self._source = source | {"keyType": "binary", "valueType": "binary"}

    def read(self, kind: str, folders: Sequence[str]) -> Any:
        """The rows of these folders; no rows without folders."""
        if not folders:
            return self._spark.createDataFrame([], SCHEMAS[kind])
        paths = [(self._root / folder).as_uri() for folder in folders]
        return self._spark.read.schema(SCHEMAS[kind]).parquet(*paths)

    def write_base(self, revision: int, folder: str) -> int:
        """Writes the state at `revision` as versions that are still valid. Returns the number of rows."""
        frame = self._load(revision=str(revision)).selectExpr(
            "key", "value", "create_revision", "version", "lease", "revision AS valid_from_revision",
            "CAST(NULL AS TIMESTAMP) AS valid_from_time",
        )  # fmt: skip
        return self._written("current", frame, folder)

    def write_changes(self, first: int, last: int, folder: str) -> int:
        frame = self._load(history="true", fromRevision=str(first), toRevision=str(last))
        return self._written("changes", frame, folder)

    def write_versions(self, current: str | None, changes: str, ended: str, valid: str) -> tuple[int, int]:
        """Writes the versions that ended with these changes, and those valid after them. Returns both numbers.

        One window over the versions before and the changes: each is valid up to the next one of its key. Both results
        are written by one pass, and then moved to their folders.
        """
        before = self.read("current", [current] if current else []).selectExpr("*", "'put' AS op")
        written = self.read("changes", [changes]).selectExpr(
            "key", "value", "create_revision", "version", "lease", "revision AS valid_from_revision",
            "timestamp AS valid_from_time", "op",
        )  # fmt: skip
        next_of_key = "OVER (PARTITION BY key ORDER BY valid_from_revision)"
        both = before.unionByName(written).selectExpr(
            "*",
            f"lead(valid_from_revision) {next_of_key} AS valid_to_revision",
            f"lead(valid_from_time) {next_of_key} AS valid_to_time",
        )
        split = both.where("op = 'put'").drop("op").selectExpr("*", "valid_to_revision IS NOT NULL AS ended")
        partial = self._root / f"{ended}.partial"
        split.write.partitionBy("ended").parquet(partial.as_uri())
        counts = []
        for part, folder in ((ENDED, ended), (OPEN, valid)):
            (partial / part).mkdir(exist_ok=True)
            (partial / part).rename(self._root / folder)
            counts.append(self.read(kind_of(folder), [folder]).count())
        shutil.rmtree(partial)
        return counts[0], counts[1]

    def merge(self, folders: Sequence[str], folder: str, rows_per_file: int) -> None:
        frame = self.read(kind_of(folder), folders)
        frame.coalesce(max(1, -(-frame.count() // rows_per_file))).write.parquet((self._root / folder).as_uri())

    def _load(self, **options: str) -> Any:
        return self._spark.read.format("palisade").options(**self._source, **options).load()

    def _written(self, kind: str, frame: Any, folder: str) -> int:
        frame.write.parquet((self._root / folder).as_uri())
        return int(self.read(kind, [folder]).count())


def kind_of(folder: str) -> str:
    return folder.partition("/")[0]


def state_at(frames: Frames, folders: Sequence[str], revision: int) -> Any:
    """The state at `revision` with the columns of the source. `folders`: those of `pieces_at`."""
    ended = frames.read("versions", [folder for folder in folders if kind_of(folder) == "versions"])
    valid = frames.read("current", [folder for folder in folders if kind_of(folder) == "current"])
    both = ended.unionByName(valid, allowMissingColumns=True)
    found = both.where(
        f"valid_from_revision <= {revision} AND (valid_to_revision IS NULL OR valid_to_revision > {revision})"
    )
    return found.selectExpr("key", "value", "valid_from_revision AS revision", "create_revision", "version", "lease")
