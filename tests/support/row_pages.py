"""Pages of rows of a read by Spark, as bytes, wherever they come from."""

from __future__ import annotations

from palisade.base.checksums import CHECKSUM_BYTES
from palisade.pipeline.vault_rows import VaultRows


def page_bytes(page: bytes | VaultRows) -> bytes:
    """Those of a vault without the checksum after each row."""
    return page if isinstance(page, bytes) else b"".join(row[:-CHECKSUM_BYTES] for row in page.rows)
