"""Reads the TTL rules through the fence of a node, over HTTP: `GET /v1/fenced`.

The node refuses while its lease does not allow an answer. Then the next node is tried; if none answers, no segment is
treated as expired.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from urllib.parse import urlencode

from palisade.base.http_request import Answer, HttpRequests, NoAnswer
from palisade.segments.retention import END, FIRST, Rules, RulesUnknown
from palisade.wire.credentials import Credentials, header_of

TRUSTED = ("vault", "quorum")
"""Origins of a linearizable answer; others are the default of a region."""


def read_rules(addresses: Sequence[str], credentials: Credentials | None) -> Rules:
    """`addresses`: host:port of HTTP, in the order in which they are tried. Raises RulesUnknown."""
    return asyncio.run(_read_rules(addresses, credentials))


async def _read_rules(addresses: Sequence[str], credentials: Credentials | None) -> Rules:
    query = {"key_base64": base64.b64encode(FIRST).decode(), "range_end_base64": base64.b64encode(END).decode()}
    reasons = []
    async with HttpRequests(header_of(credentials)) as requests:
        for address in addresses:
            try:
                return rules_in(await requests.json(address, f"/v1/fenced?{urlencode(query)}"))
            except (NoAnswer, RulesUnknown) as error:
                reasons.append(f"{address}: {error}")
    raise RulesUnknown(f"no node can answer for the TTL rules now ({'; '.join(reasons) or 'no address'})")


def rules_in(answer: Answer) -> Rules:
    """Raises RulesUnknown."""
    if answer.status != 200:
        raise RulesUnknown(answer.detail)
    try:
        if answer.content["answered_by"] not in TRUSTED or answer.content["more"]:
            raise RulesUnknown("the answer is not the node's vault, or not complete")
        return Rules({_content(each, "key"): _content(each, "value") for each in answer.content["kvs"]})
    except (KeyError, TypeError, ValueError) as error:
        raise RulesUnknown(f"unexpected response: {error!r}") from None


def _content(shape: dict[str, str], name: str) -> bytes:
    return shape[name].encode() if name in shape else base64.b64decode(shape[f"{name}_base64"])
