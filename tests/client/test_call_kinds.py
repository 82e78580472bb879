"""The client's table of calls covers the calls of a node, so that none is sent twice by mistake."""

from __future__ import annotations

from palisade.api.services import NodeServices
from palisade.api.stream.calls import Calls
from palisade.client.call_kinds import CALL_KINDS, CallKind


def test_call_kinds_cover_every_call_of_a_node(services: NodeServices) -> None:
    assert set(CALL_KINDS) == set(Calls(services, "demo")._by_name)


def test_calls_that_change_without_an_id_are_not_repeatable() -> None:
    """`member_add` sent twice could add a member that was removed in between."""
    assert not CALL_KINDS["member_add"].repeatable
    assert CALL_KINDS["catalog_do"].repeatable
    assert [name for name, kind in CALL_KINDS.items() if kind.writes] == [
        "pin", "unpin", "catalog_do", "procedure_cancel", "member_add", "member_promote", "member_remove", "transfer",
        "region_set", "region_change", "region_delete", "segments_txn",
        "segments_announce", "segments_lease",
    ]  # fmt: skip
    assert CallKind.READ.repeatable
