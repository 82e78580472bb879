"""Sources of seeds besides the fixed ones: names in DNS, a file, or a function (the NodeFinder of seed 001).

A source is read repeatedly, more often while no other node is known. Its latest result replaces the previous one, so
addresses that are no longer listed are no longer contacted. If a source fails, its previous result stays in effect.

Forms of `--seeds-from`, separated by commas:

    dns:HOST:PORT          every address of the name
    file:PATH              one host:port a line; empty lines and lines that begin with # are ignored
    call:MODULE:FUNCTION   a function without arguments, or a coroutine function, that returns 'host:port' texts
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from palisade.base.address import Address, AddressError, parse_port, split_host
from palisade.base.network_reason import reason_of

log = logging.getLogger(__name__)

FOUND_MAX = 64
"""More addresses of one source are ignored."""
ASK_S = 5.0
"""How long one answer may take."""
ALONE_S, TOGETHER_S = 1.0, 30.0
"""Pause between two rounds, without and with another known node."""
FILE_BYTES_MAX = 64 * 1024

Resolve = Callable[[str, int], Awaitable[Iterable[str]]]


class SeedSource(Protocol):
    async def find(self) -> Iterable[str]:
        """SWIM addresses as 'host:port'. Raises OSError, ValueError; anything else is logged too."""


async def resolve(host: str, port: int) -> list[str]:
    """All addresses of a name."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    return [str(Address(str(each[4][0]), port)) for each in found]


@dataclass(frozen=True, slots=True)
class DnsSeeds:
    host: str
    port: int
    resolve: Resolve = resolve

    async def find(self) -> Iterable[str]:
        return await self.resolve(self.host, self.port)

    def __str__(self) -> str:
        return f"dns:{Address(self.host, self.port)}"


@dataclass(frozen=True, slots=True)
class FileSeeds:
    path: Path

    async def find(self) -> Iterable[str]:
        text = (await asyncio.to_thread(self._read)).decode()
        lines = (line.strip() for line in text.splitlines())
        return [line for line in lines if line and not line.startswith("#")]

    def _read(self) -> bytes:
        with self.path.open("rb") as file:
            return file.read(FILE_BYTES_MAX)

    def __str__(self) -> str:
        return f"file:{self.path}"


@dataclass(frozen=True, slots=True)
class CallSeeds:
    """`function` may block: unless it is a coroutine function, it runs in a thread."""

    name: str
    function: Callable[[], Any]

    async def find(self) -> Iterable[str]:
        if inspect.iscoroutinefunction(self.function):
            found = await self.function()
        else:
            found = await asyncio.to_thread(self.function)
        if isinstance(found, str):
            raise ValueError(f"it returned the text {found[:60]!r}, not a list of 'host:port'")
        return [str(each) for each in found]

    def __str__(self) -> str:
        return f"call:{self.name}"


def seed_source_of(text: str) -> SeedSource:
    """Raises ValueError with the remedy."""
    kind, _, rest = text.partition(":")
    if kind == "dns":
        host, ports = split_host(rest)
        if len(ports) == 1 and host:
            return DnsSeeds(host, Address(host, parse_port(ports[0])).port)
    elif kind == "file" and rest:
        return FileSeeds(Path(rest))
    elif kind == "call":
        module, _, name = rest.partition(":")
        if module and name:
            return CallSeeds(rest, _function(module, name))
    raise ValueError(f"has {text!r}, which is not dns:HOST:PORT, file:PATH or call:MODULE:FUNCTION")


def _function(module: str, name: str) -> Callable[[], Any]:
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"has call:{module}:{name}, which cannot be imported: {error}") from None
    if not callable(found):
        raise ValueError(f"has call:{module}:{name}, which is not a function")
    return found  # type: ignore[no-any-return]


class SeedSearch:
    """Asks every source in each round. `alone`: whether no other node is known. `on_found` gets all addresses of the
    last answers, whenever they change."""

    def __init__(
        self, sources: Iterable[SeedSource], alone: Callable[[], bool], on_found: Callable[[tuple[str, ...]], None]
    ) -> None:
        self._answers: dict[SeedSource, tuple[str, ...]] = dict.fromkeys(sources, ())
        self._alone = alone
        self._on_found = on_found
        self._trouble: dict[SeedSource, str] = {}
        self._found: tuple[str, ...] = ()

    async def run(self) -> None:
        while True:
            await self.ask()
            await asyncio.sleep(ALONE_S if self._alone() else TOGETHER_S)

    async def ask(self) -> None:
        """One round."""
        await asyncio.gather(*map(self._ask, self._answers))
        found = tuple(dict.fromkeys(address for answer in self._answers.values() for address in answer))
        if found != self._found:
            self._found = found
            log.info("seeds found: addresses=%s", ",".join(found) or "none")
            self._on_found(found)

    async def _ask(self, source: SeedSource) -> None:
        try:
            async with asyncio.timeout(ASK_S):
                self._answers[source] = checked(await source.find())
            self._report(source, "")
        except (OSError, TimeoutError) as error:
            self._report(source, reason_of(error))
        except Exception as error:
            self._report(source, f"{type(error).__name__}: {error}")

    def _report(self, source: SeedSource, trouble: str) -> None:
        """Once for each reason, not in every round."""
        if trouble and self._trouble.get(source) != trouble:
            log.warning("seeds cannot be read, the last ones are kept: source=%s reason=%s", source, trouble)
        self._trouble[source] = trouble


def checked(addresses: Iterable[str]) -> tuple[str, ...]:
    """Raises ValueError, and then none is used: a partly written file must not replace a whole one."""
    found = []
    for each in addresses:
        try:
            found.append(str(Address.parse(each)))
        except AddressError as error:
            raise ValueError(f"{error}; the whole answer is ignored") from None
    return tuple(found[:FOUND_MAX])
