"""Reads and writes `recovery.json`, the report of a node's last recovery in its data folder, for use after its end
(R12).

A node that refuses to start gives the reason on its last line; this file adds case, LV, LM and MM. It is informative
only: no decision depends on it, so a missing or unwritable file is harmless.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from palisade.base.durable_files import replace_file
from palisade.recovery.report import RecoveryReport

log = logging.getLogger(__name__)

FILE = "recovery.json"


def keep_report(data_dir: Path) -> Callable[[RecoveryReport], None]:
    """A function to call with the report of each recovery that has ended."""

    def keep(report: RecoveryReport) -> None:
        beside = data_dir / f"{FILE}.new"
        try:
            text = json.dumps(report.as_dict(), indent=1) + "\n"
            replace_file(data_dir / FILE, text.encode(), beside)
        except OSError as error:
            log.warning("recovery report not written: error=%s", error)

    return keep


def kept_report(data_dir: Path) -> dict[str, Any] | None:
    """In the shape of `RecoveryReport.as_dict`; None if no recovery has ended yet. Raises OSError, ValueError."""
    try:
        found: dict[str, Any] = json.loads((data_dir / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if not isinstance(found, dict):
        raise ValueError(f"{data_dir / FILE} is not the report of a recovery; remove it")
    return found
