"""Every checker by the name under which it fails a run. `tests/sim/test_plants.py` requires a planted fault for each.

Liveness is checked after the faults of a run; the world itself checks whenever a node ends that nodes stay up.
"""

from __future__ import annotations

from tests.sim.administrator import REGIONS, RESERVED
from tests.sim.checkers.back_pressure import BackPressure
from tests.sim.checkers.beyond_the_bound import WritesOfHistory
from tests.sim.checkers.bounded_wait import BoundedWait
from tests.sim.checkers.catalog_answers import CatalogAnswers
from tests.sim.checkers.catalog_objects import CatalogObjects
from tests.sim.checkers.equality import Equality
from tests.sim.checkers.large_batches import LargeBatches
from tests.sim.checkers.lease_safety import LeaseSafety
from tests.sim.checkers.liveness import Liveness
from tests.sim.checkers.local_data import LocalDataComplete
from tests.sim.checkers.logged_errors import LoggedErrors
from tests.sim.checkers.lv_monotonic import LvMonotonic
from tests.sim.checkers.mm_monotonic import MmMonotonic
from tests.sim.checkers.of_history import CHECKS, OfHistory
from tests.sim.checkers.procedures import Procedures
from tests.sim.checkers.recovery_decision import RecoveryDecision
from tests.sim.checkers.recovery_inputs import RecoveryInputs
from tests.sim.checkers.removed_members import RemovedMembers
from tests.sim.checkers.restored import RestoredState
from tests.sim.checkers.segment_copies import SegmentCopies
from tests.sim.checkers.segment_counts import SegmentCounts
from tests.sim.checkers.segment_lookups import SegmentLookups
from tests.sim.checkers.segment_rows import SegmentRows
from tests.sim.checkers.survivor import SurvivorsState
from tests.sim.checkers.vaults import Vaults
from tests.sim.checkers.waited_reads import WaitedReads
from tests.sim.world import STAYS_UP
from tests.support.onlooker import Onlooker
from tests.support.raft_rules import RULES

CHECKERS: tuple[type[Onlooker], ...] = (
    *RULES,
    Equality,
    LvMonotonic,
    MmMonotonic,
    Procedures,
    CatalogAnswers,
    CatalogObjects,
    SegmentLookups,
    SegmentCopies,
    SegmentRows,
    SegmentCounts,
    LargeBatches,
    Vaults,
    LocalDataComplete,
    RestoredState,
    SurvivorsState,
    RecoveryDecision,
    RecoveryInputs,
    OfHistory,
    LeaseSafety,
    RemovedMembers,
    WaitedReads,
    BackPressure,
    BoundedWait,
    LoggedErrors,
)
BEYOND_THE_BOUND: tuple[type[Onlooker], ...] = (WritesOfHistory,)
"""In addition to the others where clocks are wrong by more than the product allows."""

NAMES: tuple[str, ...] = (
    *(kind.name for kind in CHECKERS if kind is not OfHistory),
    *CHECKS,
    *(kind.name for kind in BEYOND_THE_BOUND),
    RESERVED,
    REGIONS,
    STAYS_UP,
    Liveness.name,
)
