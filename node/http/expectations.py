"""An `Expect` header is refused in words that can be sent, whatever bytes it has (docs/bugs-found.md).

aiohttp quotes what it does not know in its answer (417), which fails for what is not UTF-8: that was a 500 and a page
in the log for each. It does so before any route, middleware or handler is asked, also where there is no such path; so
the header is made readable where requests are made.
"""

from __future__ import annotations

from typing import Any

from multidict import CIMultiDict, CIMultiDictProxy

EXPECT = "Expect"


def make_readable(server: Any) -> None:
    """`server`: the `aiohttp.web.Server` of a runner that is set up, before its first connection."""
    make = server.request_factory

    def made(message: Any, *rest: Any) -> Any:
        found = message.headers.get(EXPECT)
        if found is not None and not found.isascii():
            headers = CIMultiDict(message.headers)
            headers[EXPECT] = found.encode("ascii", "replace").decode()
            message = message._replace(headers=CIMultiDictProxy(headers))
        return make(message, *rest)

    server.request_factory = made
