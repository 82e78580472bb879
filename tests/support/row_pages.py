"""Pages of rows of a read by Spark, as bytes, wherever they come from."""

from __future__ import annotations

from palisade.pipeline.vault_rows import VaultRows
from tests.support.slice_rows import bodies_of


def page_bytes(page: bytes | VaultRows) -> bytes:
    """Those of a vault without the checksum after each row."""
    return page if isinstance(page, bytes) else b"".join(bodies_of(page.page, page.sizes))
