"""The bucket digests on disk: 64 pages of 64 sums. One change writes 1 KiB, a large batch writes all 64. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from palisade.base.digest import BUCKETS, DIGEST_BYTES, Sums, numbers_of
from palisade.vault.errors import RESET, VaultDamaged
from palisade.vault.tables import Backend, VaultTable

SUMS_PER_PAGE = 64
PAGE_BYTES = SUMS_PER_PAGE * DIGEST_BYTES


def load_sums(backend: Backend) -> Sums:
    """Buckets without a page are empty."""
    sums = [0] * BUCKETS
    for key, page in backend.scan(VaultTable.BUCKET, b"", None):
        first = int.from_bytes(key, "big") * SUMS_PER_PAGE
        if len(page) != PAGE_BYTES or first >= BUCKETS:
            raise VaultDamaged(f"the bucket digests of the vault are not readable: {RESET}")
        sums[first : first + SUMS_PER_PAGE] = numbers_of(page)
    return sums


def pages_of(sums: Sums, buckets: Iterable[int]) -> dict[bytes, bytes | None]:
    """The stored pages that contain these buckets."""
    return {_key(page): _page(sums, page) for page in sorted({bucket // SUMS_PER_PAGE for bucket in buckets})}


def _key(page: int) -> bytes:
    return page.to_bytes(1, "big")


def _page(sums: Sums, page: int) -> bytes:
    first = page * SUMS_PER_PAGE
    return b"".join([total.to_bytes(DIGEST_BYTES, "big") for total in sums[first : first + SUMS_PER_PAGE]])
