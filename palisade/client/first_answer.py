"""Sends one request to several nodes, any of which can answer it, and uses the first answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def first_answer(
    here: Coroutine[Any, Any, T],
    beside: Sequence[Coroutine[Any, Any, T]],
    final_errors: tuple[type[Exception], ...] = (),
) -> T:
    """Returns the first result of `here` or `beside`, and cancels the rest.

    Raises the error of `here` as soon as it fails, and an error of `beside` if its type is in `final_errors`. Other
    errors of `beside`, such as those of unreachable nodes, are ignored."""
    own = asyncio.ensure_future(here)
    left: set[asyncio.Future[T]] = {own, *map(asyncio.ensure_future, beside)}
    every = list(left)
    try:
        while True:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            if own in done:
                return own.result()
            for each in done:
                if each.exception() is None or isinstance(each.exception(), final_errors):
                    return each.result()
    finally:
        for each in every:
            each.cancel()
        await asyncio.gather(*every, return_exceptions=True)
