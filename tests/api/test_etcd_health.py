"""The paths at etcd's root that clients and probes of etcd 3.5 and 3.6 read: /version, /health, /livez and /readyz."""

from __future__ import annotations

from aiohttp import ClientSession

from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import FoundCluster
from palisade.raftgroup.errors import NO_MAJORITY
from tests.support.fake_group import FakeGroup

READY = "[+]ready ok\n[+]data_corruption ok\n[+]serializable_read ok\n[+]linearizable_read ok\nok\n"


async def text(http: ClientSession, path: str) -> tuple[int, str]:
    async with http.get(path) as answer:
        assert answer.content_type == "text/plain"
        return answer.status, await answer.text()


async def health(http: ClientSession, query: str = "") -> tuple[int, str, str]:
    async with http.get(f"/health{query}") as answer:
        found = await answer.json()
        return answer.status, found["health"], found["reason"]


async def test_version_names_the_etcd_version_whose_api_is_served(http: ClientSession) -> None:
    """etcd3gw and Patroni choose their paths by it, and fail without it (issue 16)."""
    async with http.get("/version") as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        found = await answer.json()
    assert found == {"etcdserver": "3.4.23", "etcdcluster": "3.4.0"}


async def test_health_names_the_reason(http: ClientSession, group: FakeGroup) -> None:
    assert await health(http) == (200, "true", "")
    group.majority = group.lease_valid = False
    status, healthy, reason = await health(http)
    assert (status, healthy) == (503, "false")
    assert reason == f"RANGE ERROR:{NO_MAJORITY}"
    group.leading = False
    assert await health(http) == (503, "false", "RAFT NO LEADER")
    assert await health(http, "?serializable=true") == (200, "true", "")


async def test_health_of_a_full_store_is_false_unless_the_alarm_is_excluded(
    http: ClientSession, group: FakeGroup
) -> None:
    group.apply([encode_command(FoundCluster("id-1"))])
    group.store._state.alarm = True
    assert await health(http) == (503, "false", "ALARM NOSPACE")
    assert await health(http, "?exclude=NOSPACE") == (200, "true", "")


async def test_verbose_probes_list_the_checks_of_etcd(http: ClientSession, group: FakeGroup) -> None:
    group.apply([encode_command(FoundCluster("id-1"))])
    assert await text(http, "/readyz?verbose") == (200, READY)
    assert await text(http, "/livez?verbose") == (200, "[+]serializable_read ok\nok\n")
    without = READY.replace("[+]linearizable_read ok\n", "")
    assert await text(http, "/readyz?verbose&exclude=linearizable_read") == (200, without)


async def test_verbose_readiness_fails_for_the_reasons_of_the_json_form(http: ClientSession, group: FakeGroup) -> None:
    status, found = await text(http, "/readyz?verbose")
    assert (status, found.splitlines()[1:]) == (503, READY.splitlines()[1:-1])
    assert found.startswith("[-]ready failed: the cluster has no id yet")


async def test_one_check_has_a_path_of_its_own(http: ClientSession, group: FakeGroup) -> None:
    assert await text(http, "/readyz/linearizable_read") == (200, "ok\n")
    assert await text(http, "/livez/serializable_read?verbose") == (200, "[+]serializable_read ok\nok\n")
    group.leading = False
    status, found = await text(http, "/readyz/linearizable_read")
    assert status == 503
    assert found.startswith(f"[-]linearizable_read failed: {NO_MAJORITY}")
    assert await text(http, "/livez/serializable_read") == (200, "ok\n")
    async with http.get("/readyz/nothing") as answer:
        assert answer.status == 404


async def test_probes_without_verbose_answer_as_json(http: ClientSession) -> None:
    for path in ("/livez", "/readyz"):
        async with http.get(path) as answer:
            assert answer.content_type == "application/json"
