"""The same request to several nodes at once; those that have not answered yet are named in the notice of a command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from palisade.base.http_request import HttpRequests
from palisade.cli.credentials import shown
from palisade.wire.credentials import header_of

T = TypeVar("T")


async def ask_each(
    addresses: Mapping[str, str],
    ask: Callable[[HttpRequests, str], Awaitable[T]],
    timeout_s: float,
    silent: dict[str, str] | None = None,
) -> dict[str, T]:
    """The result of `ask` for each node. `silent` has the nodes that have not answered yet, with their addresses.
    Raises the errors of `ask`."""
    silent = {} if silent is None else silent
    silent.update(addresses)

    async def one(name: str, address: str) -> T:
        found = await ask(requests, address)
        del silent[name]
        return found

    async with HttpRequests(header_of(shown()), timeout_s=timeout_s) as requests:
        answers = await asyncio.gather(*(one(name, address) for name, address in addresses.items()))
    return dict(zip(addresses, answers, strict=True))


def no_answer_from(silent: Mapping[str, str]) -> str | None:
    """For the notice of a command that waits for these nodes, with their addresses; None for none."""
    if not silent:
        return None
    return f"no answer yet from {', '.join(f'{name} at {address}' for name, address in silent.items())}"
