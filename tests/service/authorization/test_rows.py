"""The sources of permission rows: the vault while its lease holds, else the cluster, else none."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from palisade.metastore.requests import Put
from palisade.raftgroup.errors import Unavailable
from palisade.service.authorization.authorizer import Authorizer
from palisade.service.authorization.remote_rows import RemoteRows
from palisade.service.authorization.rights import PermissionRow
from palisade.service.authorization.rows import FencedRows, StoreRows, UnavailablePermissionRows, WouldBlock
from palisade.service.callers import UNRESTRICTED
from palisade.service.key_values import KeyValues
from palisade.vault.change import Item
from palisade.vault.errors import Denied, Fenced, VaultDamaged, VaultError
from palisade.vault.snapshot_reads import ReadOrigin, ShownPage
from palisade.wire.auth_errors import PermissionsUnknown
from tests.support.fake_group import FakeGroup

KEY = b"palisade/catalog/permissions/users/alice"


class Reads:
    """Reads of a vault: the immediate result (None: it requires waiting) and the awaited one, or the errors raised
    instead."""

    def __init__(self, now: Any, later: Any = None) -> None:
        self.answers = now, later

    def at_once(self, key: bytes) -> ShownPage | None:
        return shown(self.answers[0])

    async def read(self, key: bytes) -> ShownPage | None:
        return shown(self.answers[1])

    def permissions_state(self) -> object | None:
        return None


def shown(answer: Any) -> ShownPage | None:
    if isinstance(answer, Exception):
        raise answer
    return ShownPage(answer, 9) if isinstance(answer, Item) else answer


def fenced(now: Any, later: Any, service: KeyValues) -> FencedRows:
    reads: Any = Reads(now, later)
    return FencedRows(reads, StoreRows(service))


ITEM = Item(KEY, b"in the vault", 3, 5, 2, 0)


@pytest.fixture
async def known(service: KeyValues) -> KeyValues:
    await service.write(Put(KEY, b"in the cluster"), caller=UNRESTRICTED)
    return service


async def test_fenced_rows_are_read_from_the_vault_while_the_lease_holds(known: KeyValues) -> None:
    assert fenced(ITEM, None, known).try_read(KEY) == PermissionRow(b"in the vault", 5)
    assert fenced(ShownPage(None, 9), None, known).try_read(KEY) is None


async def test_pending_change_is_waited_for(known: KeyValues) -> None:
    rows = fenced(None, ITEM, known)
    with pytest.raises(WouldBlock):
        rows.try_read(KEY)
    assert await rows.read(KEY) == PermissionRow(b"in the vault", 5)


async def test_rows_are_read_from_the_cluster_while_the_node_is_fenced(known: KeyValues) -> None:
    """The region has policy `deny`: the reader has asked the cluster itself."""
    rows = fenced(None, ShownPage(ITEM._replace(value=b"in the cluster"), 9, ReadOrigin.QUORUM), known)
    with pytest.raises(WouldBlock):
        rows.try_read(KEY)
    assert await rows.read(KEY) == PermissionRow(b"in the cluster", 5)
    with pytest.raises(PermissionsUnknown, match="nobody answers"):
        await fenced(None, Denied("nobody answers"), known).read(KEY)


@pytest.mark.parametrize("refusal", [Fenced("the vault is not open"), VaultDamaged("a checksum")])
async def test_rows_are_read_from_the_cluster_without_a_vault(known: KeyValues, refusal: VaultError) -> None:
    rows = fenced(refusal, refusal, known)
    with pytest.raises(WouldBlock):
        rows.try_read(KEY)
    found = await rows.read(KEY)
    assert found is not None
    assert found.value == b"in the cluster"


async def test_permissions_are_unknown_without_a_cluster(known: KeyValues, group: FakeGroup) -> None:
    group.lease_valid = group.majority = False
    with pytest.raises(PermissionsUnknown):
        await fenced(None, Fenced("the vault is not open"), known).read(KEY)
    with pytest.raises(WouldBlock):
        StoreRows(known).try_read(KEY)
    with pytest.raises(PermissionsUnknown):
        await UnavailablePermissionRows().read(KEY)


def answering(answer: Any) -> RemoteRows:
    async def ask(method: str, path: str, body: Any) -> Any:
        assert (method, path) == ("POST", "/v1/range")
        assert base64.b64decode(body["key_base64"]) == KEY
        if isinstance(answer, Exception):
            raise answer
        return answer

    return RemoteRows(ask)


async def test_follower_asks_a_member() -> None:
    kv = {"key": KEY.decode(), "value_base64": "/w==", "mod_revision": 7}
    assert await answering({"kvs": [kv]}).read(KEY) == PermissionRow(b"\xff", 7)
    assert await answering({"kvs": []}).read(KEY) is None


@pytest.mark.parametrize(
    "answer",
    [Unavailable("nobody"), None, [], {}, {"kvs": None}, {"kvs": [{}]}, {"kvs": [1]},
     {"kvs": [{"key": "another", "value": "", "mod_revision": 7}]},
     {"kvs": [{"key": KEY.decode(), "value": 1, "mod_revision": 7}]},
     {"kvs": [{"key": KEY.decode(), "value_base64": "!", "mod_revision": 7}]},
     {"kvs": [{"key": KEY.decode(), "value": "", "mod_revision": "7"}]}],
)  # fmt: skip
async def test_invalid_response_of_a_member_grants_nothing(answer: Any) -> None:
    with pytest.raises(PermissionsUnknown):
        await answering(answer).read(KEY)


async def test_read_that_takes_long_names_the_missing_leader_as_the_cause(known: KeyValues, group: FakeGroup) -> None:
    """With a frozen majority it was "its cluster does not answer"."""

    class Waiting(StoreRows):
        async def read(self, key: bytes) -> PermissionRow | None:
            return await asyncio.sleep(3600)

        def try_read(self, key: bytes) -> PermissionRow | None:
            raise WouldBlock

    reads: Any = Reads(None)
    authorizer = Authorizer(Waiting(known), None)
    with pytest.raises(PermissionsUnknown, match=r"in time: its cluster does not answer; .*; retry"):
        await authorizer.row(KEY, 0.01)
    group.led_by(None)
    with pytest.raises(PermissionsUnknown, match="in time: no leader is known: a majority of the voters must be up"):
        await authorizer.row(KEY, 0.01)
    assert FencedRows(reads, StoreRows(known)).trouble() == group.status().no_leader
    authorizer.close()
