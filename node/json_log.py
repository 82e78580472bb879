"""Log lines as JSON (`--log-format json`): one object per record, with the fields of an event apart from its text.

A log line of a node is an event and fields: "node state changed: node=n2 state=failed". The formatter splits these, so
that a log collector need not parse them. Pure.
"""

from __future__ import annotations

import datetime
import json
import logging
import re

FIELD = re.compile(r"(?:^|\s)(?:(error|reason)=(.+)|([a-z][a-z0-9_]*)=(\S+))", re.DOTALL)
"""The text of an error is the rest of the line."""


class JsonFormatter(logging.Formatter):
    """`time` is UTC. `fields`: the key=value pairs after the colon; `error`: the traceback of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        event, _, rest = text.partition(": ")
        pairs = {text or name: rest or value for text, rest, name, value in FIELD.findall(rest)}
        shape: dict[str, object] = {
            "time": f"{datetime.datetime.fromtimestamp(record.created, datetime.UTC):%Y-%m-%dT%H:%M:%S.%f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": text,
        }
        if pairs:
            shape |= {"event": event, "fields": pairs}
        if record.exc_info:
            shape["error"] = self.formatException(record.exc_info)
        return json.dumps(shape, ensure_ascii=False)
