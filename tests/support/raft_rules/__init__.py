"""The rules of Raft, one per file, for any simulated world (`tests/support/onlooker.py`)."""

from __future__ import annotations

from tests.support.onlooker import Onlooker
from tests.support.raft_rules.election_safety import ElectionSafety
from tests.support.raft_rules.leader_completeness import LeaderCompleteness
from tests.support.raft_rules.log_matching import LogMatching
from tests.support.raft_rules.membership_matching import MembershipMatching
from tests.support.raft_rules.state_machine_safety import StateMachineSafety
from tests.support.raft_rules.terms import Terms
from tests.support.raft_rules.words_on_disk import WordsOnDisk

RULES: tuple[type[Onlooker], ...] = (
    WordsOnDisk,
    ElectionSafety,
    Terms,
    LeaderCompleteness,
    StateMachineSafety,
    LogMatching,
    MembershipMatching,
)
