"""The survivor of a lost majority continues with all of its log, in a newer generation
(docs/operations.md, `recover-quorum`).

The state after its log was computed when the others were lost, entry by entry (`surviving.py`), with the entry of the
break. A node that applies that entry must have exactly that state: numbers with the digest of the whole history, leases
with their deadlines, results for retries, and the record that makes the first leader wait for earlier leases.
"""

from __future__ import annotations

from collections.abc import Sequence

from palisade.metastore.ordered_map import OrderedMap, Table
from palisade.metastore.state import StoreState
from palisade.node.fencing.inherited_leases import record_name
from tests.sim.backups import Base, Survivor
from tests.sim.checkers.restored import leases_of, numbers_of, rows_of
from tests.sim.node import Host
from tests.sim.world import Checker, World


class SurvivorsState(Checker):
    name = "survivor's state"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._survivor: Survivor | None = None
        self._generation = 0

    def restored(self, base: Base) -> None:
        self._survivor, self._generation = base.survivor, base.generation

    def applied(self, host: Host, index: int, term: int, commands: Sequence[bytes]) -> None:
        survivor = self._survivor
        if survivor is None or index < survivor.index or host.id != survivor.id:
            return
        self._survivor = None
        tables: OrderedMap = host.store._tables
        wanted: OrderedMap = survivor.store._tables
        what = f"{host.id}, which goes on alone,"
        if index > survivor.index:
            self.fail(f"{what} is at entry {index}, and has not come by {survivor.index}, behind which it is alone")
            return
        state = StoreState(tables)
        if numbers_of(state) != numbers_of(survivor.store._state):
            self.fail(f"{what} has {numbers_of(state)}, and its log came to {numbers_of(survivor.store._state)}")
        if state.lineage.generation != self._generation:
            self.fail(f"{what} is of {state.lineage}, and was to be of generation {self._generation}")
        if leases_of(tables) != leases_of(wanted):
            self.fail(f"{what} has the leases {leases_of(tables)}, and its log came to {leases_of(wanted)}")
        if rows_of(tables, Table.CLIENT) != rows_of(wanted, Table.CLIENT):
            self.fail(f"{what} has other answers for retries than its log came to")
        if tables.get(Table.META, b"system/" + record_name(self._generation).encode()) is None:
            self.fail(f"{what} waits for no possible holder of an earlier lease")
