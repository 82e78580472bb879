"""One Spark session for all tests of this folder: a start takes about ten seconds."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palisade.pipeline.errors import SparkMissing
from palisade.pipeline.java import require_java, require_pyspark
from tests.support.spark_classes import short_lived

CONFIG = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
    "spark.python.worker.idleTimeoutSeconds": "60",
}


@pytest.fixture(scope="session")
def java() -> None:
    """Skips the test, loudly, on a machine that cannot run Spark; fails it in CI."""
    try:
        require_pyspark()
        require_java()
    except SparkMissing as error:
        if "CI" in os.environ:
            raise
        warnings.warn(f"THE TESTS OF THE PIPELINE ARE SKIPPED: {error}", stacklevel=1)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from palisade.spark import session

    root = Path(__file__).parents[2]
    os.environ.update(short_lived())
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    folder = tmp_path_factory.mktemp("spark")
    started = session("local[2]", config=CONFIG | {"spark.sql.warehouse.dir": str(folder)})
    started.sparkContext.setLogLevel("ERROR")
    yield started
    started.stop()
