"""The log of aiohttp, as every HTTP server of a node has it: its own faults, and nothing that a client did wrong.

What a client did wrong is answered, and is no news: whoever hammers the port must not fill the disk.
"""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

_OF_CLIENTS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)


class _OwnFaults(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], _OF_CLIENTS))


def quiet_log() -> logging.Logger:
    logger = logging.getLogger("node.http.aiohttp")
    if not logger.filters:
        logger.addFilter(_OwnFaults())
    return logger
