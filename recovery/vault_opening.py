"""Opens a node's vault beside its event loop.

Mostly that takes milliseconds. After a loss of power the vault is verified as a whole, seconds per million keys; the
member of the Raft group that the node is has to go on meanwhile, and whoever stops the node is not to wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path

from palisade.vault.directory import VaultDirectory
from palisade.vault.opening import open_vault
from palisade.vault.vault import Vault

log = logging.getLogger(__name__)


class Unwanted(Exception):
    """Nobody waits for this vault any more."""


async def opened(path: Path) -> Vault:
    """As `open_vault`, and raises what it does. Cancelled, it leaves no vault open."""
    if VaultDirectory(path).suspect:
        log.warning("the machine may have died while %s was written: it is verified as a whole first", path)
    unwanted = threading.Event()

    def between() -> None:
        if unwanted.is_set():
            raise Unwanted

    opening = asyncio.ensure_future(asyncio.to_thread(open_vault, path, between=between))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        unwanted.set()
        opening.add_done_callback(_close)
        raise


def _close(opening: asyncio.Future[Vault]) -> None:
    """It was too late to say that it is not wanted."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
