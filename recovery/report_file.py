"""The report of a node's last recovery, kept in its data folder: it can be read when the process is gone (R12).

A node that refuses to start tells why on its last line; the case, LV, LM and MM of it are here. It is a copy for
people: nothing is decided by it, so a folder without it, or with one that can't be written, is as good as any other.
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
    """What is called with each report when its recovery has ended."""

    def keep(report: RecoveryReport) -> None:
        beside = data_dir / f"{FILE}.new"
        try:
            text = json.dumps(report.as_dict(), indent=1) + "\n"
            replace_file(data_dir / FILE, text.encode(), beside)
        except OSError as error:
            log.warning("the report of the recovery is not kept: %s", error)

    return keep


def kept_report(data_dir: Path) -> dict[str, Any] | None:
    """As `RecoveryReport.as_dict` has it; None where no recovery has ended yet. Raises OSError, ValueError."""
    try:
        found: dict[str, Any] = json.loads((data_dir / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if not isinstance(found, dict):
        raise ValueError(f"{data_dir / FILE} is not the report of a recovery; remove it")
    return found
