"""Opens a node's vault without blocking its event loop.

This usually takes milliseconds. After a power failure the vault is verified as a whole, which takes seconds per million
keys; a member of the Raft group must continue meanwhile, and stopping the node must not wait for it.
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
    """The vault is no longer needed."""


async def opened(path: Path) -> Vault:
    """As `open_vault`, with the same errors. If cancelled, it leaves no vault open."""
    if VaultDirectory(path).suspect:
        log.warning("the machine may have gone down during a write, verifying the whole vault: path=%s", path)
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
    """The cancellation came too late to prevent the opening."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
