"""Spark with Palisade: `pip install '.[spark]'` in a clone, and Java 17 or 21.

from palisade.spark import register, session

spark = session("local[2]")
register(spark)
tables = spark.read.format("palisade").option("endpoints", "127.0.0.1:7601").option("prefix", "tables/").load()
"""

from __future__ import annotations

from typing import Any

from palisade.pipeline.java import listen_on_loopback, require_java, require_pyspark


def register(spark: Any) -> None:
    """Make `format("palisade")` known to a SparkSession. The workers need this package too."""
    require_pyspark()
    from palisade.pipeline.spark_source import PalisadeSource

    spark.dataSource.register(PalisadeSource)


def session(master: str = "local[*]", *, app: str = "palisade", config: dict[str, str] | None = None) -> Any:
    """A SparkSession with `palisade` registered. Raises SparkMissing, before Spark is started, without pyspark or with
    an unsuitable Java.

    With a local master, Spark listens on loopback only, its user interface too, unless SPARK_LOCAL_IP is set."""
    require_pyspark()
    require_java()
    listen_on_loopback(master)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(app)
    for name, value in {"spark.sql.session.timeZone": "UTC", **(config or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark
