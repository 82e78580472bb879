"""The Raft group of a scenario: its members as processes, and a client of them that writes the catalog."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

from palisade.catalog.demo.entries import CatalogEntry
from palisade.cli.scenarios.actor import Actor
from palisade.client import Client

QUICK = ["--heartbeat-ms", "50", "--election-min-ms", "500", "--election-max-ms", "750"]
TIMEOUT_S = 15.0
SETTLED_S = 10.0
"""On a busy machine the leader may change at any time; no election takes this long."""
POLL_S = 0.05


class Ground(Protocol):
    """The part of `stage.Stage` that this module uses."""

    def address(self) -> str: ...
    def actor(self, name: str, group: str, http: str, swim: str, arguments: list[str]) -> Actor: ...
    def at_end(self, close: Callable[[], Awaitable[None]]) -> None: ...
    async def until(self, holds: Callable[[], Any], what: str) -> Any: ...


class Members:
    def __init__(self, stage: Ground, name: str, size: int, options: Sequence[str] = ()) -> None:
        self.name = name
        self.options = list(options)
        self._stage = stage
        self.streams: list[str] = []
        self.actors: list[Actor] = []
        self._client: Client | None = None
        rows = [(f"n{number}", *(stage.address() for _ in range(4))) for number in range(1, size + 1)]
        founders = ",".join(
            f"{node}={peer}:{http.rpartition(':')[2]}:{stream.rpartition(':')[2]}"
            for node, http, peer, stream, _ in rows
        )
        seeds = ",".join(swim for *_, swim in rows)
        for node, http, peer, stream, swim in rows:
            arguments = ["--id", node, "--cluster", name, "--http", http, "--peer", peer, "--stream", stream]
            arguments += ["--swim", swim, "--seeds", seeds, "--initial-cluster", founders, *QUICK, *options]
            self.actors.append(stage.actor(node, name, http, swim, arguments))
            self.streams.append(stream)

    def __getitem__(self, name: str) -> Actor:
        return next(actor for actor in self.actors if actor.name == name)

    async def start(self) -> None:
        """Starts the members that do not run; returns when all are ready."""
        for actor in self.actors:
            if not actor.runs:
                await actor.start()
        await self.ready()

    async def ready(self) -> None:
        """Waits until all are ready and in the logical topology; before that a new cluster may lack its id."""
        for actor in self.actors:
            await self._stage.until(actor.active, f"{actor.name} of {self.name} being ready and active")

    async def stop(self) -> None:
        """Stops all members."""
        await self.close()
        await asyncio.gather(*(actor.stop() for actor in self.actors))

    async def kill(self) -> None:
        """Kills all members."""
        await self.close()
        await asyncio.gather(*(actor.kill() for actor in self.actors))

    async def undisturbed(self) -> tuple[bool, str]:
        """Whether every member is ready and one of them is the leader; waits for the end of a running election."""
        held, said = await self._looks_undisturbed()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLED_S):
                while not held:
                    await asyncio.sleep(POLL_S)
                    held, said = await self._looks_undisturbed()
        return held, said

    async def _looks_undisturbed(self) -> tuple[bool, str]:
        rows = [await actor.status() for actor in self.actors if actor.runs]
        good = [row for row in rows if row.get("ready")]
        leaders = {row.get("leader") for row in good}
        said = ", ".join(f"{row.get('member')} LM {row.get('revision')}" for row in rows)
        return len(good) == len(rows) > 0 and len(leaders) == 1, said

    # Followers.

    def follower(self, name: str, *options: str, join: str | None = None, folder: str | None = None) -> Actor:
        """A node with a vault of this cluster, not started yet. `join`: it joins over HTTP, not by SWIM."""
        http, swim = self._stage.address(), self._stage.address()
        arguments = ["--follow", "--id", name, "--cluster", self.name, "--http", http, "--swim", swim]
        seeds = ",".join(actor.swim for actor in self.actors)
        arguments += ["--join", join] if join is not None else ["--seeds", seeds]
        return self._stage.actor(name, folder or self.name, http, swim, [*arguments, *options])

    # Writes and reads.

    @property
    def client(self) -> Client:
        if self._client is None:
            raise RuntimeError("no client is open")
        return self._client

    async def _open(self) -> Client:
        if self._client is None:
            self._client = await Client(self.streams, timeout_s=TIMEOUT_S).__aenter__()
            self._stage.at_end(self.close)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def load(self, entries: Iterable[CatalogEntry]) -> int:
        """Writes each entry in one revision. Returns LM."""
        client = await self._open()
        await client.put_many((entry.key, entry.value) for entry in entries)
        return await self.latest()

    async def delete(self, keys: Iterable[bytes]) -> int:
        """Deletes each key in one revision. Returns LM."""
        client = await self._open()
        await asyncio.gather(*(client.delete(key) for key in keys))
        return await self.latest()

    async def latest(self) -> int:
        """Returns LM, from a linearizable read."""
        client = await self._open()
        return (await client.range(b"/none")).revision

    async def compact(self, revision: int) -> int:
        """Compacts to MM = `revision`; returns when every member has it."""
        client = await self._open()
        await client.compact(revision)

        async def moved() -> bool:
            rows = [await actor.status() for actor in self.actors if actor.runs]
            return all(int(row.get("minimal_revision", 0)) >= revision for row in rows)

        await self._stage.until(moved, f"MM of {self.name} at {revision}")
        return revision

    async def digest(self) -> dict[str, Any]:
        """The digests of any running member."""
        for actor in self.actors:
            found = await actor.get("/v1/digest") if actor.runs else {}
            if "revision" in found:
                return found
        return {}

    # Changes of the folders of stopped members.

    def copy_folders(self) -> None:
        """Copies the folders, for `put_back`."""
        for actor in self.actors:
            shutil.copytree(actor.data_dir, actor.folder / "copy")

    def put_back(self) -> None:
        """Replaces the folders by the copies."""
        for actor in self.actors:
            shutil.rmtree(actor.data_dir)
            shutil.copytree(actor.folder / "copy", actor.data_dir)
