"""The status of nodes is readable, also of nodes that do not respond."""

from __future__ import annotations

from rich.console import Console

from palisade.cli.status_table import status_table
from palisade.service.status import (
    cell,
    changes_of,
    clusters_of,
    leaderless_of,
    line_of,
    plain_cells,
    row_of,
    silent_row,
)

STATUS = {
    "cluster": "c", "member": "n1", "version": "0", "role": "leader", "leader": "n1", "term": 2, "ready": True,
    "revision": 5532, "minimal_revision": 1, "raft": {"commit_index": 7001, "applied_index": 7001}, "members": [],
}  # fmt: skip
LEADER = row_of(STATUS, "http://127.0.0.1:7401")
SILENT = silent_row("n2", "http://127.0.0.1:7402")


def test_status_row_has_the_values_of_the_table() -> None:
    assert LEADER == {
        "cluster": "c",
        "cluster_id": None,
        "id": "n1", "url": "http://127.0.0.1:7401", "role": "leader", "term": 2, "leader": "n1", "generation": None,
        "ready": True,
        "revision": 5532, "minimal_revision": 1, "commit_index": 7001, "applied_index": 7001,
        "topology": None, "recovery": None, "fence": None, "released": None, "fencing": None,
        "refused_by": None,
    }  # fmt: skip
    assert SILENT.keys() == LEADER.keys()


def test_status_table_has_every_column_and_marks_silent_nodes() -> None:
    console = Console(width=140, force_terminal=False)
    with console.capture() as capture:
        console.print(status_table([LEADER, SILENT], 200))
    lines = capture.get().splitlines()
    assert any("n1 *" in line and "5,532" in line and "http://127.0.0.1:7401" in line for line in lines)
    assert any("n2" in line and "silent" in line and " no " in line for line in lines)


def test_cells_for_programs_are_plain() -> None:
    assert plain_cells(LEADER)[:5] == ["n1", "leader", "2", "5532", "1"]


def test_status_line_has_role_term_revision_and_readiness() -> None:
    assert line_of(LEADER) == "n1 leader term 2 revision 5,532 ready"
    assert line_of(SILENT) == "n2 silent"


def test_running_recovery_is_in_row_line_and_table() -> None:
    """Issue 3: each phase reports progress. Without a terminal `palisade up` prints each tenth of it."""
    progress = {"phase": "replay", "done": 120, "total": 500, "unit": "revisions"}
    row = row_of(STATUS | {"topology": {"phase": "recovering"}, "recovery": progress}, None)
    assert cell(row, "topology") == "recovering (replay 24 %)"
    assert line_of(row) == "n1 leader term 2 revision 5,532 ready, recovering (replay 24 %)"
    assert changes_of([row]) == changes_of([row | {"recovery": progress | {"done": 149}}])
    assert changes_of([row]) != changes_of([row | {"recovery": progress | {"done": 150}}])
    assert changes_of([row]) != changes_of([row | {"recovery": None}])
    counting = row_of(STATUS | {"topology": {"phase": "active"}, "recovery": progress | {"total": None}}, None)
    assert cell(counting, "topology") == "active (replay)"


def test_new_revision_is_no_change_of_status_but_a_new_leader_is() -> None:
    assert changes_of([LEADER | {"revision": 6000}]) == changes_of([LEADER])
    assert changes_of([LEADER | {"role": "follower"}]) != changes_of([LEADER])


def test_clusters_of_rows_have_name_and_id() -> None:
    """Issue 16: a command that talks to another cluster than meant."""
    rows = [row_of({"cluster": "c1", "cluster_id": "0f"}, None), row_of({"cluster": "c1", "cluster_id": "0f"}, None)]
    assert clusters_of([*rows, silent_row("n3", None)]) == ["cluster c1, id 0f"]
    follower = row_of({"member": "f1", "cluster": "c1"}, None)
    assert clusters_of([*rows, follower]) == ["cluster c1, id 0f"], "a follower printed a line of its own"
    assert clusters_of([follower]) == ["cluster c1; f1 has not received the cluster's ID yet"]
    other = {**follower, "id": "f2"}
    assert clusters_of([follower, other]) == ["cluster c1; f1, f2 have not received the cluster's ID yet"]


def test_status_without_a_leader_names_the_nodes_that_do_not_answer() -> None:
    """Without a majority, the remaining node was shown as "recovering", without a reason."""
    alone = row_of(STATUS | {"member": "n3", "role": "follower", "leader": None}, None)
    (line,) = leaderless_of([silent_row("n1", None), SILENT, alone])
    assert line == "no leader is known: n1, n2 do not answer; a leader needs a majority of the voters"
    assert leaderless_of([SILENT, alone])[0].startswith("no leader is known: n2 does not answer")
    assert leaderless_of([alone]) == ["no leader is known: an election may be in progress"]
    assert leaderless_of([LEADER, SILENT, alone]) == []
    assert leaderless_of([alone, row_of(STATUS | {"member": "n2", "role": "follower"}, None)]) == []
    assert leaderless_of([SILENT]) == leaderless_of([row_of(STATUS | {"role": "learner", "leader": None}, None)]) == []
