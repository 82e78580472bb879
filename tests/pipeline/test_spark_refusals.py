"""Refused options: Spark's error has the reason, without the traceback of its worker (issue 16)."""

from __future__ import annotations

import os
from typing import Any

import pytest

from palisade.pipeline.errors import PipelineError
from palisade.pipeline.spark_failure import cause_of
from palisade.pipeline.spark_source import PalisadeSource


def message_of(action: Any) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as refused:
        action()
    return str(refused.value)


def test_refused_option_has_no_traceback(spark: Any) -> None:
    read = spark.read.format("palisade").option("endpoints", "127.0.0.1:9").option("prefi", "/a")
    text = message_of(read.load)
    assert "Traceback" not in text
    assert "palisade.pipeline.errors.BadOption: " in text.splitlines()[0]
    assert "prefi" in text.splitlines()[0]


def test_refused_write_has_no_traceback(spark: Any) -> None:
    rows = spark.createDataFrame([("/a", "1")], "key string, value string")
    write = rows.write.format("palisade").mode("append").option("endpoints", "127.0.0.1:9").option("prefi", "/a")
    assert "Traceback" not in message_of(write.save)


def test_refused_stream_has_no_traceback(spark: Any) -> None:
    read = spark.readStream.format("palisade").option("endpoints", "127.0.0.1:9").option("prefix", "/a")
    assert "Traceback" not in message_of(read.load)


def test_silent_cluster_has_no_traceback(spark: Any) -> None:
    read = spark.read.format("palisade").option("endpoints", "127.0.0.1:9").option("timeoutMs", "1000")
    text = message_of(read.option("prefix", "/a").load)
    assert "Traceback" not in text
    assert "127.0.0.1:9" in text.splitlines()[0]


def test_bug_keeps_its_traceback(spark: Any) -> None:
    """The next function of the same session still has its traceback."""
    from pyspark.sql.functions import udf

    broken = udf(lambda _: 1 / 0, "int")
    assert "Traceback" in message_of(spark.range(1).select(broken("id")).collect)


def test_other_processes_keep_their_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    with pytest.raises(PipelineError):
        PalisadeSource({"prefi": "/a"}).schema()
    assert "SPARK_HIDE_TRACEBACK" not in os.environ


def test_cause_is_found_in_an_error_without_traceback() -> None:
    from pyspark.errors import AnalysisException

    error = AnalysisException("[PYTHON_DATA_SOURCE_ERROR] Failed to plan: palisade.pipeline.errors.BadOption: no prefi")
    assert cause_of(error) == "no prefi (BadOption)"
