"""The baselines of Spark reads: the same rows generated in the tasks, and etcd read page by page.

Workers import this module, so it imports nothing of the harness.
"""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

KEY_BYTES = 13
PREFIX = "rows/"
ROWS_PER_BATCH = 8_000
PAGE_ROWS = 10_000
OPS_MAX = 128
"""Operations of a transaction of etcd, by default."""


def key_of(number: int) -> str:
    return f"{PREFIX}{number:0{KEY_BYTES - len(PREFIX)}d}"


class GeneratedRows(DataSource):
    """The rows of the benchmark as a scan of their state yields them, with the same batches, but without a server.

    Options `rows` and `parts`.
    """

    @classmethod
    def name(cls) -> str:
        return "generated"

    def schema(self) -> str:
        return "key STRING, value BINARY, revision BIGINT, create_revision BIGINT, version BIGINT, lease BIGINT"

    def reader(self, schema: Any) -> GeneratedReader:
        rows, parts = int(self.options["rows"]), int(self.options["parts"])
        return GeneratedReader(rows, parts, to_arrow_schema(schema, timezone="UTC"))


class GeneratedReader(DataSourceReader):
    def __init__(self, rows: int, parts: int, schema: pa.Schema) -> None:
        self._rows, self._parts, self._schema = rows, parts, schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self._parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        first, last = (self._rows * (partition.value + more) // self._parts for more in (0, 1))
        for at in range(first, last, ROWS_PER_BATCH):
            yield batch_of(at, min(at + ROWS_PER_BATCH, last), self._schema)


def batch_of(first: int, last: int, schema: pa.Schema) -> pa.RecordBatch:
    count = last - first
    numbers = np.arange(first, last, dtype=np.int64)
    columns = {
        "key": pa.array([key_of(number) for number in range(first, last)], pa.string()),
        "value": pa.array([b"v" * 100] * count, pa.binary()),
        "revision": pa.array(numbers + 2),
        "create_revision": pa.array(numbers + 2),
        "version": pa.array(np.ones(count, np.int64)),
        "lease": pa.array(np.zeros(count, np.int64)),
    }
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)


class EtcdDriver:
    """A program without a connector: it reads page after page, and makes a DataFrame of all rows."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)

    def load(self, rows: int, value: bytes) -> None:
        text = encoded(value)
        for first in range(0, rows, OPS_MAX):
            puts = [
                {"requestPut": {"key": encoded(key_of(number).encode()), "value": text}}
                for number in range(first, min(first + OPS_MAX, rows))
            ]
            self._post("/v3/kv/txn", {"success": puts})

    def table(self) -> pa.Table:
        """All rows of one revision."""
        found: dict[str, list[Any]] = {"key": [], "value": [], "revision": [], "create_revision": [], "version": []}
        at, revision, more = PREFIX.encode(), 0, True
        end = encoded(PREFIX.encode()[:-1] + b"0")
        while more:
            asked = {"key": encoded(at), "range_end": end, "limit": PAGE_ROWS, "revision": revision}
            page = self._post("/v3/kv/range", asked)
            revision, kvs = revision or int(page["header"]["revision"]), page["kvs"]
            keys = [base64.b64decode(kv["key"]) for kv in kvs]
            found["key"] += [key.decode() for key in keys]
            found["value"] += [base64.b64decode(kv["value"]) for kv in kvs]
            found["revision"] += [int(kv["mod_revision"]) for kv in kvs]
            found["create_revision"] += [int(kv["create_revision"]) for kv in kvs]
            found["version"] += [int(kv["version"]) for kv in kvs]
            at, more = keys[-1] + b"\0", page.get("more", False)
        return pa.table(found)

    def _post(self, path: str, body: Any) -> Any:
        self._connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise OSError(f"etcd answers {path} with {answer.status}: {content[:200]!r}")
        return json.loads(content)

    def close(self) -> None:
        self._connection.close()


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
