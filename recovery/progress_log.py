"""Logs the progress of a long recovery; a short one logs nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable

from palisade.recovery.report import RecoveryProgress
from palisade.recovery.report_json import progress_text

log = logging.getLogger(__name__)

EVERY_S = 5.0


class ProgressLog:
    """`now` in seconds. Logs at least `EVERY_S` after the beginning, and after the previous line."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._logged_at = now()

    def began(self, recovering: bool) -> None:
        self._logged_at = self._now()

    def went_on(self, progress: RecoveryProgress) -> None:
        now = self._now()
        if now - self._logged_at >= EVERY_S:
            self._logged_at = now
            log.info("recovering: %s", progress_text(progress.as_dict()))
