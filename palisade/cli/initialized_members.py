"""Waits until the nodes of a new cluster listen as members: their ports are closed for a moment meanwhile."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Mapping

from palisade.base.http_request import HttpRequests, NoAnswer

ASK_S = 2.0
AGAIN_S = 0.1


async def until_listening(addresses: Mapping[str, str], until: float, silent: dict[str, str]) -> None:
    """`addresses`: member -> its HTTP address. `until`: in the time of `time.monotonic`. `silent` gets the members that
    do not answer yet, with address and reason. Not waited for: a member whose host name this machine cannot resolve."""
    silent |= {name: f"{name} at {address} (no answer yet)" for name, address in addresses.items()}

    async def follow(name: str, address: str) -> None:
        while (left_s := until - time.monotonic()) > 0:
            async with HttpRequests(timeout_s=min(ASK_S, left_s)) as requests:
                try:
                    if await is_member(requests, address):
                        del silent[name]
                        return
                    reason = "it has not become a member yet"
                except NoAnswer as error:
                    reason = error.reason
                    if isinstance(getattr(error.__cause__, "os_error", None), socket.gaierror):
                        silent[name] = f"{name} at {address} ({reason})"
                        return
            silent[name] = f"{name} at {address} ({reason})"
            await asyncio.sleep(min(AGAIN_S, max(0.0, until - time.monotonic())))

    await asyncio.gather(*(follow(name, address) for name, address in addresses.items()))


async def is_member(requests: HttpRequests, address: str) -> bool:
    """A node serves this path, to every client, once it is a member; its stream port listens before its HTTP port.
    Raises NoAnswer."""
    return (await requests.json(address, "/v1/login")).status == 200
