"""Options of the JVMs of these tests, which live for seconds: one compiler, a simple collector, and an archive of the
classes of Spark.

A JVM of Spark loads and verifies 13,000 classes from 250 jars, which takes more CPU than most tests. With an archive
(JEP 350: class data sharing) it maps them. The first run in an environment makes the archive: a session of its own runs
a few queries, and its JVM writes the file as it ends. A JVM whose classes or version differ from those of the archive
ignores it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.spark_home import HOME, installed, make_home

ROOT = Path(__file__).parents[2]
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The start of a driver takes 10 s of CPU instead of 18 without the second compiler."""
STDOUT_IS_PARSED = "-Xlog:disable -Xlog:all=warning:stderr"
"""The launcher of Spark has another class path than the archive, and a JVM prints a warning about that to stdout."""
OF_EXECUTORS = (
    "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker",
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
)  # fmt: skip
"""Classes that a local session does not load."""
CREATED_S = 300.0


@cache
def short_lived() -> dict[str, str]:
    """The environment of every JVM. Makes the archive and the home of Spark if there are none."""
    archive = _place()
    with (archive.parent / "spark-classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        make_home()
        if not archive.exists():
            for old in archive.parent.glob("spark-*.jsa"):
                old.unlink()
            _create(archive)
    options = f"{OPTIONS} -XX:SharedArchiveFile={archive} {STDOUT_IS_PARSED}"
    return {"JDK_JAVA_OPTIONS": options, "SPARK_HOME": str(HOME)}


def _place() -> Path:
    """Of the archive of this Java and this installation of Spark: beside the latter, in .venv."""
    home = os.environ.get("JAVA_HOME", "")
    java = os.path.join(home, "bin", "java") if home else "java"
    plain = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}
    version = subprocess.run([java, "-version"], env=plain, capture_output=True, timeout=60, check=True).stderr
    jars = installed() / "jars"
    key = hashlib.sha256(b"%b %d %b" % (version, jars.stat().st_mtime_ns, Path(__file__).read_bytes())).hexdigest()
    return Path(sys.prefix) / f"spark-{key[:16]}.jsa"


def _create(archive: Path) -> None:
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)
    variables = {
        "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": OPTIONS,
        "SPARK_HOME": str(HOME),
        "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={part} -Xlog:disable",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.spark_classes"],
        env={**os.environ, **variables}, cwd=ROOT, capture_output=True, text=True, timeout=CREATED_S, check=False,
    )  # fmt: skip
    if done.returncode or not part.exists():
        raise RuntimeError(f"the archive of Spark's classes was not made: {done.stdout}{done.stderr}")
    part.rename(archive)


def main() -> None:
    """Uses what the tests use, then waits for the end of the JVM."""
    import tempfile

    from palisade.spark import session

    with tempfile.TemporaryDirectory() as folder:
        config = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": folder}
        spark = session("local[2]", config=config)
        _run_queries(spark, Path(folder))
        jvm = spark.sparkContext._jvm
        for name in OF_EXECUTORS:
            jvm.java.lang.Class.forName(name)
        gateway = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


def _run_queries(spark: Any, folder: Path) -> None:
    rows = spark.range(0, 100, 1, 2).selectExpr("id", "concat('k', id % 7) AS key", "timestamp_seconds(id) AS at")
    rows.mapInArrow(_passed_on, rows.schema).write.parquet(str(folder / "rows"))
    read = spark.read.parquet(str(folder / "rows"))
    read.groupBy("key").count().join(read, "key").orderBy("id").collect()
    copy = spark.readStream.schema(read.schema).parquet(str(folder / "rows")).writeStream.trigger(availableNow=True)
    copy = copy.foreachBatch(lambda frame, _: frame.count()).option("checkpointLocation", str(folder / "checkpoint"))
    copy.start().awaitTermination()
    spark.sql("CREATE TEMPORARY VIEW v AS SELECT 1 AS a")
    spark.sql("SELECT a FROM v").collect()


def _passed_on(batches: Any) -> Any:
    yield from batches


if __name__ == "__main__":
    main()
