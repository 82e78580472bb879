"""The options of `StoreApi.range`."""

from __future__ import annotations

from typing import TypedDict

from palisade.metastore.requests import SortOrder, SortTarget


class RangeOptions(TypedDict, total=False):
    """The options of `range`.

    `limit`: the maximum number of keys; 0 (the default) means all. `revision`: read at this revision; 0 (the default)
    is the newest. `sort_order`, `sort_target`: by default in key order. `serializable`: read the state of the contacted
    node without asking the leader. `keys_only`: omit the values. `count_only`: only count the keys.
    `min_mod_revision`, `max_mod_revision`, `min_create_revision`, `max_create_revision`: omit keys that were changed or
    created outside these bounds; 0 (the default) means no bound. `exact_count`: by default, `count` is that of the
    whole range; with False, a read with a limit does not count the keys beyond it.
    """

    limit: int
    revision: int
    sort_order: SortOrder
    sort_target: SortTarget
    serializable: bool
    keys_only: bool
    count_only: bool
    min_mod_revision: int
    max_mod_revision: int
    min_create_revision: int
    max_create_revision: int
    exact_count: bool
