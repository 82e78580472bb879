"""A home of Spark without its Python sources in a zip.

The JVM begins the path of its Python processes with `pyspark.zip` of its home. Python keeps no byte code of a zip, so
each process compiled what it imported of PySpark: 0.7 of its 1.1 s of CPU, and a driver with a stream starts about ten.
Without the zip they import the installed PySpark, of the same version.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

NEEDED = "bin", "jars"
HOME = Path(sys.prefix) / "spark-home"


def installed() -> Path:
    """The home of the installed PySpark."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def make_home() -> None:
    """Makes `HOME`, with links to what is installed. Not for several processes at a time."""
    HOME.mkdir(exist_ok=True)
    for name in NEEDED:
        link, target = HOME / name, installed() / name
        if not (link.is_symlink() and os.readlink(link) == str(target)):
            link.unlink(missing_ok=True)
            link.symlink_to(target)
