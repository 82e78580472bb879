"""What a restore changes in the state of the backup before a cluster begins with it. Pure.

- The generation grows: who kept a copy of what came after the backup must notice that it is gone.
- Every lease begins its time anew. Whoever holds one could not keep it alive since the backup, and a lease must not
  end before its holder had its whole time; the clock of the leases goes on from where the backup has it.
- Everything else stays: the id of the cluster, revisions, history, digests. So do the results of writes with a request
  id: a write of before the backup is in the state, and its retry gets the first answer; one of after it is not, has no
  result either, and is executed when it is sent again.

The same backup gives the same bytes, on whichever machine: so a group may be restored node by node.
"""

from __future__ import annotations

from palisade.metastore.lease import LEASE_VALUE
from palisade.metastore.lineage import LINEAGE_KEY, Lineage, encode_lineage
from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.state import StoreState


def begin_restored(tables: OrderedMap, generation: int) -> Lineage:
    """Of a generation that is newer than the backup's. Raises ValueError for another one, and nothing was changed."""
    state = StoreState(tables)
    if generation <= state.lineage.generation:
        raise ValueError(
            f"the backup is of generation {state.lineage.generation}: give a greater one, not {generation}"
        )
    lineage = Lineage(state.lineage.cluster_id, generation)
    tables.put(Table.META, LINEAGE_KEY, encode_lineage(lineage))
    for lease, packed in list(tables.scan(Table.LEASE, b"", None)):
        ttl_s, _ = LEASE_VALUE.unpack(packed)
        tables.put(Table.LEASE, lease, LEASE_VALUE.pack(ttl_s, state.clock_ms + ttl_s * 1000))
    return lineage
