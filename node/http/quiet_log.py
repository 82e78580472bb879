"""The log of aiohttp, as every HTTP server of a node has it: its own faults, and nothing that a client did wrong.

What a client did wrong is answered, and is no news: whoever hammers the port must not fill the disk. Nor is it any
that a request ended at the very moment in which aiohttp, told to close, waited for it no longer: aiohttp would tell
its waiter, which is gone, and calls that an error. Errors of handlers never come to that place.
"""

from __future__ import annotations

import logging
from asyncio import InvalidStateError

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

_OF_CLIENTS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)
_OUTSIDE_OF_HANDLERS = "Unhandled exception"


class _OwnFaults(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if record.msg == _OUTSIDE_OF_HANDLERS and isinstance(error, InvalidStateError):
            return False
        return not isinstance(error, _OF_CLIENTS)


def quiet_log() -> logging.Logger:
    logger = logging.getLogger("node.http.aiohttp")
    if not logger.filters:
        logger.addFilter(_OwnFaults())
    return logger
