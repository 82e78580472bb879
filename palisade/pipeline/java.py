"""Whether this machine can run Spark: pyspark is installed, and Java is 17 or 21.

Checked before Spark is started, because the errors of Spark do not name the remedy.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys

from palisade.pipeline.errors import SparkMissing

JAVA_VERSIONS = (17, 21)
INSTALL_JAVA = "install Java 17 (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"


def require_pyspark() -> None:
    """Raises SparkMissing."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        raise SparkMissing("pyspark is not installed: pip install '.[spark]' in a clone of Palisade")


def require_java() -> None:
    """Raises SparkMissing. Also lets the workers use this Python, unless PYSPARK_PYTHON names another."""
    home = os.environ.get("JAVA_HOME", "")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    check_java(_version_text(java) if java else None)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def listen_on_loopback(master: str) -> None:
    """For a local master, unless SPARK_LOCAL_IP is set: by default Spark's user interface listens on all addresses."""
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def check_java(version_text: str | None) -> None:
    """`version_text`: what `java -version` prints; None without Java. Raises SparkMissing."""
    if version_text is None:
        raise SparkMissing(f"Spark needs Java, and there is none: {INSTALL_JAVA}")
    found = re.search(r'version "(?:1\.)?(\d+)', version_text)
    if found is None:
        raise SparkMissing(f"java -version printed {version_text[:80]!r}, which names no version: {INSTALL_JAVA}")
    if int(found[1]) not in JAVA_VERSIONS:
        raise SparkMissing(f"Spark needs Java 17 or 21, and this is Java {found[1]}: {INSTALL_JAVA}")


def _version_text(java: str) -> str | None:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stderr + done.stdout
