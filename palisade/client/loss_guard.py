"""Cancels the body of an `async with` when something is lost, as `asyncio.timeout` does at its deadline. `GuardedBody`
is the `async with` of leases, locks and elections."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self


class LossGuard:
    """Is in `guards` while its body runs; the owner calls `fire` on all of them. `loss` returns the error to raise."""

    def __init__(self, guards: set[LossGuard], loss: Callable[[], Exception | None]) -> None:
        self._guards = guards
        self._loss = loss
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._fired = False

    def fire(self) -> None:
        """Cancel the body."""
        if self._task is not None and not self._fired:
            self._fired = True
            self._task.cancel()

    async def __aenter__(self) -> LossGuard:
        """Raises the loss if there is one already."""
        loss = self._loss()
        if loss is not None:
            raise loss
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        self._guards.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises the loss if the body was cancelled because of it, or ended without an error after it."""
        self._guards.discard(self)
        if self._task is None or not self._fired:
            return
        only_this = self._task.uncancel() <= self._cancelling
        if kind is None:
            await self._take_cancellation(only_this)
        elif not (only_this and issubclass(kind, asyncio.CancelledError)):
            return
        loss = self._loss()
        if loss is not None:
            raise loss from error

    @staticmethod
    async def _take_cancellation(only_this: bool) -> None:
        """The body ended before its cancellation was delivered: it must not reach the code after the body."""
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if not only_this:
                raise


class GuardedBody(ABC):
    """An `async with` that begins something and ends it, whose body is cancelled if that is lost meanwhile."""

    _body: LossGuard

    @abstractmethod
    async def _begin(self) -> LossGuard:
        """Returns the guard of the body, which is not entered yet."""

    @abstractmethod
    async def _end(self) -> None:
        """Called after the body, however it ended."""

    async def __aenter__(self) -> Self:
        self._body = await self._begin()
        await self._body.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._body.__aexit__(kind, error, trace)
        finally:
            await self._end()
