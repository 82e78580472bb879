"""etcd names clusters and members by 64-bit numbers; here they are made from the names, the same on every node."""

from __future__ import annotations

from hashlib import blake2b


def number_of(*names: str) -> int:
    """A number from 1 to 2^63 - 1 for a cluster's name, or for a cluster's and a member's."""
    digest = blake2b("\0".join(names).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1 or 1
