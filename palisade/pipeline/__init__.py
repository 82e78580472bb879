"""The data pipeline on Spark: a client of the cluster like others. `palisade.spark` is its public name.

`palisade.pipeline.run("history", ...)` runs a job, as `palisade pipeline run` does.

Planning, decoding and offsets are pure and import no pyspark; `spark_*.py` connect them to Spark.
"""

from palisade.pipeline.job import Report
from palisade.pipeline.running import run

__all__ = ["Report", "run"]
