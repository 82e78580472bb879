"""Asks several nodes for what any of them can answer: the first answer counts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def first_answer(
    here: Coroutine[Any, Any, T],
    beside: Sequence[Coroutine[Any, Any, T]],
    answers: tuple[type[Exception], ...] = (),
) -> T:
    """The result of `here`, or of the first of `beside` that has one. `answers`: errors that count as a result. Another
    error of `beside` does not, such as that of a node that cannot be reached. Raises the error of `here`."""
    own = asyncio.ensure_future(here)
    left: set[asyncio.Future[T]] = {own, *map(asyncio.ensure_future, beside)}
    every = list(left)
    try:
        while True:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            if own in done:
                return own.result()
            for each in done:
                if each.exception() is None or isinstance(each.exception(), answers):
                    return each.result()
    finally:
        for each in every:
            each.cancel()
        await asyncio.gather(*every, return_exceptions=True)
