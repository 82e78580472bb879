"""The file that a segment's record names, as a source: a folder that all nodes reach, for example over NFS.

Only regular files of `file:` URLs are read, up to the limit of a segment: the publisher of the segment chooses the
path, and a pipe or a device must not block the node. The digest excludes other content.
"""

from __future__ import annotations

import asyncio
import os
import stat

from palisade.base.file_url import BadFileUrl, path_of_url
from palisade.base.network_reason import reason_of
from palisade.catalog.errors import DamagedRow
from palisade.catalog.segment import SegmentRecord
from palisade.segments.names import SIZE_BYTES_MAX, Wanted, segment_named
from palisade.segments.sources import SourceFailed
from palisade.vault.errors import VaultError
from palisade.vault.vault import Vault


class FileSource:
    """A `sources.SegmentSource`. `name`: the URL."""

    def __init__(self, url: str) -> None:
        self.name = url

    async def get(self, name: str, wanted: Wanted) -> bytes:
        return await asyncio.to_thread(self._read, SIZE_BYTES_MAX + 1)

    def _read(self, limit: int) -> bytes:
        try:
            path = path_of_url(self.name)
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise SourceFailed("is not a regular file")
                return file.read(limit)
        except BadFileUrl as error:
            raise SourceFailed(f"{error}; nodes read file: URLs only") from None
        except OSError as error:
            raise SourceFailed(reason_of(error)) from None


def url_of(name: str, vault: Vault) -> str:
    """The URL in the segment's record in the vault; empty if there is none, or the record cannot be read."""
    segment = segment_named(name)
    try:
        item = vault.get(segment.key)
        return "" if item is None else SegmentRecord.from_bytes(segment.key, item.value).url
    except (VaultError, DamagedRow):
        return ""
