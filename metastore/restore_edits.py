"""The changes that a restore makes to the state of the backup before a cluster starts with it. Pure.

- The generation grows: a node with a copy of later state must notice that this state is lost.
- Every lease starts its full ttl again. Its holder could not keep it alive since the backup, and a lease must not end
  before its ttl; the clock of the leases continues from the backup's.
- Everything else stays: the id of the cluster, revisions, history, digests, and the results of writes with a request
  id. A write before the backup is in the state, and its retry gets the first result. A write after the backup is not in
  the state, has no result, and is executed when it is sent again.

The same backup produces the same bytes on every machine, so a group can be restored node by node.
"""

from __future__ import annotations

from palisade.metastore.lease import lease_row, read_lease_row
from palisade.metastore.lineage import LINEAGE_KEY, Lineage, encode_lineage
from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.state import StoreState


def begin_restored(tables: OrderedMap, generation: int) -> Lineage:
    """With a generation newer than the backup's. Raises ValueError for another one, with nothing changed."""
    state = StoreState(tables)
    if generation <= state.lineage.generation:
        raise ValueError(f"the backup has generation {state.lineage.generation}: give a greater one, not {generation}")
    lineage = Lineage(state.lineage.cluster_id, generation)
    tables.put(Table.META, LINEAGE_KEY, encode_lineage(lineage))
    for lease, packed in list(tables.scan(Table.LEASE, b"", None)):
        ttl_ms, _ = read_lease_row(packed)
        tables.put(Table.LEASE, lease, lease_row(ttl_ms, state.clock_ms + ttl_ms))
    return lineage
