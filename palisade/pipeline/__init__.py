"""The data pipeline on Spark: a client of the cluster like others. `palisade.spark` is its public name.

Planning, decoding and offsets are pure and import no pyspark; `spark_*.py` connect them to Spark.
"""
