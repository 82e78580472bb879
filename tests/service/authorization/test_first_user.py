"""The first administrator is created once, and never a second time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from palisade.api.cluster_view import not_ready
from palisade.api.services import NodeServices
from palisade.base.errors import ConfigError
from palisade.catalog.passwords import SALT_BYTES, sealed
from palisade.metastore.requests import Range
from palisade.raftgroup.errors import Unavailable
from palisade.service.authorization.authorizer import Authorizer
from palisade.service.authorization.bootstrap import NO_USER, FirstUser, first_user, password_in
from palisade.service.authorization.login import Login, write_own
from palisade.service.authorization.needs import EVERYTHING
from palisade.service.authorization.rights import PermissionRow
from palisade.service.authorization.rows import StoreRows, WouldBlock
from palisade.service.key_values import KeyValues
from palisade.wire.auth_errors import NoUserYet, PermissionDenied, PermissionsUnknown, WrongPassword
from palisade.wire.credentials import Password
from tests.support.hand_clock import Clock
from tests.support.permission_world import PROOF, Users, gate_over
from tests.support.waiting import until


async def test_root_may_do_everything_with_the_password_of_the_file(service: KeyValues) -> None:
    running = asyncio.create_task(FirstUser(service, "roots password").run())
    authorizer = Authorizer(StoreRows(service), PROOF)
    try:
        await until(lambda: service.store.revision > 1)
        identity = await authorizer.identify(Password("root", "roots password"), "here")
        (await authorizer.rights(identity)).check((EVERYTHING,))
        with pytest.raises(WrongPassword):
            await authorizer.identify(Password("root", "another password"), "here")
    finally:
        running.cancel()
        authorizer.close()


async def test_first_user_is_created_by_one_of_several_nodes(service: KeyValues) -> None:
    first = await write_own(service, first_user(sealed("first password", b"1" * SALT_BYTES)))
    second = await write_own(service, first_user(sealed("second password", b"2" * SALT_BYTES)))
    assert (first.succeeded, second.succeeded) == (True, False)


async def test_node_is_not_ready_before_its_first_user_can_sign_in(service: KeyValues) -> None:
    """`scripts/bench/run authorization` waited for ready nodes, then signed in, and was refused as with a wrong
    password (issue 16)."""
    user = FirstUser(service, "roots password")
    services = NodeServices(service, first_user=user)
    waits = "the first user root is not created yet"
    assert waits in not_ready(services)
    authorizer = Authorizer(StoreRows(service), PROOF)
    running = asyncio.create_task(user.run())
    try:
        await until(lambda: waits not in not_ready(services))
        assert (await authorizer.identify(Password("root", "roots password"), "here")).user == "root"
    finally:
        running.cancel()
        authorizer.close()


async def test_right_password_is_refused_as_too_early_before_the_first_user_exists(service: KeyValues) -> None:
    """It was refused as "wrong user name or password", right after `palisade up` with a new root password."""
    user = FirstUser(service, "roots password")
    authorizer = Authorizer(StoreRows(service), PROOF, no_user=user.no_user)
    try:
        for _ in range(20):  # not counted as wrong passwords, after which the right one would have to wait
            with pytest.raises(NoUserYet, match="no user yet: retry"):
                await authorizer.identify(Password("root", "roots password"), "here")
        running = asyncio.create_task(user.run())
        await until(lambda: not user.not_ready())
        running.cancel()
        assert (await authorizer.identify(Password("root", "roots password"), "here")).user == "root"
        with pytest.raises(WrongPassword):
            await authorizer.identify(Password("unknown", "roots password"), "here")
    finally:
        authorizer.close()


async def test_right_password_is_not_wrong_if_the_first_user_is_created_after_its_row_was_read(
    service: KeyValues, clock: Clock
) -> None:
    """A node refused root's password as wrong, 0.5 s after another node had created root: it had read the row before,
    and looked for any user afterwards."""
    rows = CreatedAfterRead(service)
    authorizer = gate_over(rows, clock, no_user=FirstUser(service, None).no_user)
    try:
        assert (await authorizer.identify(Password("root", "roots password"), "here")).user == "root"
        assert rows.reads == 2
        with pytest.raises(WrongPassword):
            await authorizer.identify(Password("unknown", "roots password"), "here")
        assert rows.reads == 3  # not read again: it would take longer than for a user that exists
    finally:
        authorizer.close()


class CreatedAfterRead(StoreRows):
    """Another node creates root directly after the first read."""

    reads = 0

    def try_read(self, key: bytes) -> PermissionRow | None:
        raise WouldBlock

    async def read(self, key: bytes) -> PermissionRow | None:
        found = await super().read(key)
        self.reads += 1
        if self.reads == 1:
            await Users(self._service).make("root", ("admin", ""))
        return found


async def test_password_is_not_wrong_while_it_is_not_known_whether_there_is_a_user(
    service: KeyValues, clock: Clock
) -> None:
    """The first user may be created during the check of the password."""

    async def fails(*_: object, **__: object) -> None:
        raise Unavailable("no leader")

    cut_off: Any = SimpleNamespace(range=fails)
    authorizer = gate_over(StoreRows(service), clock, no_user=FirstUser(cut_off, "roots password").no_user)
    try:
        with pytest.raises(PermissionsUnknown, match=r"whether the cluster has a user yet \(no leader\): retry"):
            await authorizer.identify(Password("root", "roots password"), "here")
    finally:
        authorizer.close()


async def test_answer_whether_there_is_a_user_takes_no_longer_than_the_client_waits(
    service: KeyValues, clock: Clock
) -> None:
    authorizer = gate_over(StoreRows(service), clock, no_user=asyncio.get_running_loop().create_future)
    try:
        with pytest.raises(PermissionsUnknown, match="could not read the permissions in time"):
            await authorizer.identify(Password("root", "roots password"), "here", 0.01)
    finally:
        authorizer.close()


async def test_node_without_password_file_is_ready_without_users(service: KeyValues) -> None:
    assert FirstUser(service, None).not_ready() == []


async def test_cluster_with_users_gets_no_first_user(service: KeyValues) -> None:
    await Users(service).make("alice")
    before = service.store.revision
    assert not (await write_own(service, first_user(sealed("roots password", b"1" * SALT_BYTES)))).succeeded
    assert service.store.revision == before


async def test_log_warns_without_users_and_without_password_file(
    service: KeyValues, caplog: pytest.LogCaptureFixture
) -> None:
    running = asyncio.create_task(FirstUser(service, None).run())
    await until(lambda: NO_USER in caplog.text)
    running.cancel()
    assert not service.store.range(Range(b"palisade/", b"palisade0")).kvs


@pytest.mark.parametrize("text", ["short\n", "x" * 300])
def test_invalid_password_file_is_refused_without_its_content(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(ConfigError) as refused:
        password_in(tmp_path / "file")
    assert text.strip() not in str(refused.value)
    with pytest.raises(ConfigError, match=r"none cannot be read: no such file or directory$"):
        password_in(tmp_path / "none")


async def test_token_key_is_created_once_and_readable_by_admins_alone(service: KeyValues, clock: Clock) -> None:
    users = Users(service)
    await users.make("bob", ("read", ""), ("write", ""))
    authorizer = gate_over(StoreRows(service), clock)
    logins = [Login(service, authorizer).token(Password("bob", "bobs password"), "here") for _ in range(5)]
    assert len({token for token, _ in await asyncio.gather(*logins)}) == 1
    rights = await authorizer.rights(await authorizer.identify(Password("bob", "bobs password"), "here"))
    from palisade.service.authorization.authorizer import TOKEN_KEY
    from palisade.service.authorization.needs import reading, writing

    for need in (reading(TOKEN_KEY), writing(TOKEN_KEY), reading(b"palisade/", b"palisade0")):
        with pytest.raises(PermissionDenied):
            rights.check((need,))
    authorizer.close()


async def test_demo_catalog_waits_for_the_first_user_of_a_new_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    from palisade.cli.supervisor import up

    monkeypatch.setattr(up, "STATUS_S", 0.0)
    tries: list[int] = []

    async def load() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise WrongPassword("not yet")

    await up._signed_in(load, 10.0)
    assert len(tries) == 3
    tries.clear()
    with pytest.raises(WrongPassword):
        await up._signed_in(load, 0.0)
