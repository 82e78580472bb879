"""Only the cluster itself writes below `palisade/`, whatever the request, alone or in a frame (issue 16)."""

from __future__ import annotations

from typing import Any

import pytest

from palisade.metastore.command_codec import encode_command
from palisade.metastore.limits import Limits
from palisade.metastore.put_series import encode_series
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, Txn
from palisade.service.callers import THIS_NODE, UNRESTRICTED
from palisade.service.write_checks import WriteChecks
from palisade.wire.fencing_errors import ReservedKey
from tests.support.strict_service import StrictService

OWN = Put(b"palisade/x", b"1")
USERS = Put(b"/k", b"1")
EXISTS = Compare(b"palisade/x", CompareTarget.VERSION, CompareResult.GREATER, 0)
WRITES_OWN: dict[str, Any] = {
    "put": OWN,
    "delete": DeleteRange(b"palisade/x"),
    "delete-of-a-range": DeleteRange(b"palisade/a", b"palisade/z"),
    "delete-of-a-wide-range": DeleteRange(b"a", b"z"),
    "delete-of-everything": DeleteRange(b"\0", b"\0"),
    "txn": Txn((), (OWN,)),
    "txn-beside-others": Txn((), (USERS, OWN)),
    "txn-otherwise": Txn((EXISTS,), (USERS,), (OWN,)),
    "txn-that-deletes": Txn((), (DeleteRange(b"p", b"q"),)),
    "txn-nested": Txn((), (Txn((), (USERS,), (Txn((), (OWN,)),)),)),
}
WRITES_NONE: dict[str, Any] = {
    "put": USERS,
    "put-of-a-like-name": Put(b"palisade", b""),
    "put-of-data": Put(b"palisade.data/1", b""),
    "delete-before": DeleteRange(b"a", b"palisade/"),
    "delete-after": DeleteRange(b"palisade0", b"\0"),
    "txn-that-compares": Txn((EXISTS,), (USERS,)),
    "txn-that-reads": Txn((), (Range(b"palisade/x"), USERS)),
}


@pytest.mark.parametrize("request_", WRITES_OWN.values(), ids=WRITES_OWN)
async def test_user_request_that_writes_the_clusters_own_keys_is_refused(request_: Any) -> None:
    service = StrictService()
    with pytest.raises(ReservedKey, match="keys under palisade/ are the cluster's own"):
        await service.key_values.write(request_, caller=UNRESTRICTED)
    assert service.group.submitted == 0


@pytest.mark.parametrize(("name", "request_"), WRITES_OWN.items(), ids=WRITES_OWN)
async def test_only_a_wide_delete_is_refused_with_advice_on_deletes(name: str, request_: Any) -> None:
    """A put was refused with "delete around them"."""
    wide = {"delete-of-a-wide-range", "delete-of-everything", "txn-that-deletes"}
    with pytest.raises(ReservedKey) as refused:
        await StrictService().key_values.write(request_, caller=UNRESTRICTED)
    assert ("; delete " in str(refused.value)) == (name in wide)


@pytest.mark.parametrize("request_", WRITES_OWN.values(), ids=WRITES_OWN)
async def test_node_writes_the_clusters_own_keys(request_: Any) -> None:
    service = StrictService()
    await service.key_values.write(request_, caller=THIS_NODE)
    assert service.group.submitted == 1


@pytest.mark.parametrize("request_", WRITES_NONE.values(), ids=WRITES_NONE)
async def test_user_request_beside_the_clusters_own_keys_is_taken(request_: Any) -> None:
    await StrictService().key_values.write(request_, caller=UNRESTRICTED)


async def test_wide_delete_passes_where_the_cluster_has_no_keys() -> None:
    service = StrictService(has_own=False)
    await service.key_values.write(DeleteRange(b"\0", b"\0"), caller=UNRESTRICTED)
    with pytest.raises(ReservedKey):
        await service.key_values.write(DeleteRange(b"palisade/x"), caller=UNRESTRICTED)


# Frames of the stream.


def frame(*commands: bytes) -> tuple[list[int], list[tuple[int, type]]]:
    """(numbers of what may be proposed, numbers of what is refused, with why)."""
    checks = WriteChecks(Limits(), StrictService().strict)
    accepted, refused = checks.frame(list(enumerate(commands, 1)), UNRESTRICTED, 100)
    return [each.number for each in accepted], [(each.number, type(each.refusal)) for each in refused]


@pytest.mark.parametrize("request_", WRITES_OWN.values(), ids=WRITES_OWN)
async def test_command_of_a_frame_that_writes_the_clusters_own_keys_is_refused(request_: Any) -> None:
    commands = encode_command(USERS, None), encode_command(request_, None), encode_command(USERS, None)
    assert frame(*commands) == ([1, 3], [(2, ReservedKey)])


async def test_puts_of_a_series_are_refused_one_by_one() -> None:
    series = encode_series(None, [b"/a", b"", b"palisade/x", b"", b"/b", b""])
    assert frame(series) == ([1, 3], [(2, ReservedKey)])
