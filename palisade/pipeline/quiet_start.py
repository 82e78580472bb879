"""Starts the Java process of Spark without lines on stderr that a user can do nothing about.

- Spark prints three lines about its default log, and a warning about Hadoop's native library. They are avoided by a
  configuration of the log, unless the user has one.
- Java prints that Spark uses an incubator module, and has no option against it. This line is omitted; all others are
  passed on.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

LOG = Path(__file__).with_name("log4j2.properties")
OPTIONS = "SPARK_SUBMIT_OPTS"
SUFFIXES = (".properties", ".xml", ".yaml", ".yml", ".json", ".jsn")
USES_INCUBATOR = b"WARNING: Using incubator modules: jdk.incubator.vector"


def start_java(command: Sequence[str], **options: Any) -> tuple[subprocess.Popen[bytes], threading.Thread]:
    """The process, with the arguments that PySpark has for `Popen`, and the thread that passes its stderr on."""
    home = Path(command[0]).parent.parent
    options["env"] = quiet(options.get("env") or os.environ, home)
    process = subprocess.Popen(command, **options, stderr=subprocess.PIPE)
    thread = threading.Thread(target=pass_on, args=(process.stderr,), name="palisade-java-stderr", daemon=True)
    thread.start()
    return process, thread


def quiet(environ: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    """The environment of Java. Later options win, so those of the user come last."""
    given = environ.get(OPTIONS, "")
    folder = Path(environ.get("SPARK_CONF_DIR") or spark_home / "conf")
    if "log4j" in given or any(each.suffix in SUFFIXES for each in folder.glob("log4j2*")):
        return dict(environ)
    return {**environ, OPTIONS: f'"-Dlog4j2.configurationFile={LOG}" {given}'.rstrip()}


def pass_on(lines: IO[bytes]) -> None:
    """Until the process has ended."""
    for line in lines:
        if line.rstrip() != USES_INCUBATOR:
            os.write(2, line)
