"""The output of `palisade vault inspect` and `export`: the vault as plain values. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from palisade.base.digest import DIGEST_BYTES
from palisade.vault.position import VaultLineage
from palisade.vault.vault import Vault


@dataclass(frozen=True, slots=True)
class Summary:
    """`recovering`: the target of an unfinished snapshot. `buckets`: how many have keys. `config`: the configuration of
    the node's last start. `pending`: changes that are staged and not applied.
    """

    lineage: VaultLineage | None
    revision: int
    chain: str
    keys: int
    buckets: int
    recovering: int | None
    eviction_pending: bool
    config: dict[str, str]
    pending: int


def summary_of(vault: Vault) -> Summary:
    return Summary(
        lineage=vault.lineage,
        revision=vault.revision,
        chain=vault.chain.hex() if len(vault.chain) == DIGEST_BYTES else "",
        keys=vault.key_count,
        buckets=sum(total != 0 for total in vault.sums),
        recovering=None if vault.recovering is None else vault.recovering.target,
        eviction_pending=vault.plan() is not None,
        config={name: value.decode(errors="replace") for name, value in vault.config().items()},
        pending=len(vault.staging.pending),
    )


def export_rows(vault: Vault, chosen: Callable[[bytes], bool] = lambda _: True) -> Iterator[dict[str, object]]:
    """One row per live key that is chosen, in order; key and value as text if they are UTF-8, else in base64.

    The state at LV: staged changes that are not applied are not included.
    """
    for item in vault.range(b""):
        if chosen(item.key):
            yield {**_text("key", item.key), **_text("value", item.value)}


def _text(name: str, value: bytes) -> dict[str, object]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(value).decode()}
