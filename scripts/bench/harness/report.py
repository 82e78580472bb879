"""Shows the lines of a benchmark as a table, and stores them as JSON with the machine and the code."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from harness.figures import Line, Verdict

ROOT = Path(__file__).resolve().parents[3]
KEPT = ROOT / "docs" / "benchmarks"
FSYNCS = 200
TABLE_WIDTH = 100
PACKAGES = {"wrk": "wrk", "etcd": "etcd-server", "setpriv": "util-linux"}


class ToolMissing(Exception):
    """A program that the benchmark needs is not installed; the text has the remedy."""


def need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        packages = " ".join(PACKAGES[program] for program in missing)
        raise ToolMissing(f"{', '.join(missing)} is not installed: apt-get install {packages}")


def show(title: str, lines: Sequence[Line]) -> None:
    compared = any(line.theirs is not None for line in lines)
    table = Table(title=title, title_justify="left", header_style="bold")
    table.add_column("what", no_wrap=True)
    for column in ("unit", "palisade", *(("etcd", "ratio") if compared else ()), "wanted", "verdict"):
        table.add_column(column, justify="right", no_wrap=True)
    for line in lines:
        versus = ["", ""] if compared else []
        if line.theirs is not None:
            versus = [figure(line.theirs), f"{line.value:.2f}"]
        style = "green" if line.verdict is Verdict.PASS else "bold red"
        verdict = f"[{style}]{line.verdict.value}[/]"
        table.add_row(line.title, line.unit, figure(line.ours), *versus, str(line.threshold), verdict)
    Console(width=TABLE_WIDTH).print(table)


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def keep(name: str, folder: Path, content: Mapping[str, Any]) -> Path:
    """Write docs/benchmarks/<date>-<name>.json; a later run of the same day replaces it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{datetime.now(UTC):%Y-%m-%d}-{name}.json"
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def surroundings(folder: Path) -> dict[str, Any]:
    """The machine, its disk and its load at this moment, and the code that was measured."""
    return {
        "measured_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%MZ}",
        "commit": commit(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "fsync_ms": round(fsync_ms(folder), 3),
        "load_before": round(os.getloadavg()[0], 2),
    }


def fsync_ms(folder: Path) -> float:
    """Of one page, on the disk where the servers write; mean of `FSYNCS`."""
    with tempfile.TemporaryFile(dir=folder) as file:
        began = time.perf_counter()
        for _ in range(FSYNCS):
            os.pwrite(file.fileno(), b"x" * 4096, 0)
            os.fsync(file.fileno())
        return (time.perf_counter() - began) / FSYNCS * 1e3


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def commit() -> str:
    """Of the tree, with a '+' when it has changes; 'unknown' outside of a clone."""
    try:
        said = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--exclude=*", "--dirty=+"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()
