"""A node without a network serves reads of its vault, marked as such, and changes nothing (R8; issue 3)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from click.testing import CliRunner

from palisade.base.address import Address
from palisade.base.clock import SystemClock
from palisade.cli.main import main
from palisade.metastore.command_codec import encode_command
from palisade.metastore.requests import FoundCluster, Put
from palisade.node.config import NodeConfig
from palisade.node.config_sources import load_node_config
from palisade.node.data_dir import claim_data_dir
from palisade.node.standalone import StandaloneNode
from palisade.recovery.catchup import Difference
from palisade.recovery.decision import Case
from palisade.recovery.errors import RecoveryRefused
from palisade.recovery.report import RecoveryOutcome, RecoveryReport
from palisade.recovery.report_file import keep_report, kept_report
from palisade.recovery.report_json import report_lines
from palisade.recovery.vault_component import OnVault, RecoveryClock, VaultComponent
from palisade.recovery.vault_storage import VaultFolder
from palisade.service.key_values import KeyValues
from palisade.service.local_source import local_source
from palisade.vault.errors import VaultForeign
from palisade.vault.opening import open_vault
from tests.support.fake_group import fake_group
from tests.support.metrics_page import differences
from tests.support.processes import free_port

KEYS = {f"/catalog/tables/t{number}": f"columns {number}" for number in range(20)}


async def fill(data_dir: Path) -> int:
    """Creates a vault in the folder of f1, with the keys of a cluster; returns LV."""
    group = fake_group()
    group.apply([encode_command(FoundCluster("id-1"))])
    for key, value in KEYS.items():
        group.apply([encode_command(Put(key.encode(), value.encode()))])
    service = KeyValues(group, group.store, deadline_s=0.3)
    claim_data_dir(data_dir, cluster="c1", node="f1")
    clock = RecoveryClock(SystemClock(), gentle=False)
    keeper = VaultComponent(
        VaultFolder(data_dir / "vault"), "f1", local_source(service, "f1"), OnVault(), clock, Difference(0)
    )
    await keeper.start()
    revision = await keeper.catch_up()
    await keeper.stop()
    return revision


def config_of(data_dir: Path, node: str = "f1") -> NodeConfig:
    given = {"id": node, "cluster": "c1", "data-dir": str(data_dir), "http": f"127.0.0.1:{free_port()}"}
    return load_node_config({**given, "standalone": "true"}, environ={})


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[ClientSession]:
    await fill(tmp_path / "f1")
    node = StandaloneNode(config_of(tmp_path / "f1"))
    try:
        await node.start()
        async with ClientSession(f"http://{node.config.http}") as session:
            yield session
    finally:
        await node.stop()


async def test_standalone_node_serves_its_vault_and_marks_every_response(alone: ClientSession) -> None:
    async with alone.get("/v1/kv/%2Fcatalog%2Ftables%2Ft7") as answer:
        assert (answer.status, await answer.text()) == (200, "columns 7")
        assert answer.headers["Palisade-Standalone"] == "true"
    async with alone.get("/v1/kv?prefix=/catalog/&limit=3&keys_only=true") as answer:
        found = await answer.json()
        assert (found["count"], found["more"], len(found["kvs"])) == (20, True, 3)
    async with alone.post(
        "/v1/range", json={"key": "/", "prefix": True, "sort_order": "descend", "limit": 1}
    ) as answer:
        assert (await answer.json())["kvs"][0]["key"] == "/catalog/tables/t9"
    async with alone.get("/v1/export?prefix=/") as answer:
        lines = [json.loads(line) for line in (await answer.text()).splitlines()]
        assert {line["key"]: line["value"] for line in lines[1:]} == KEYS
    async with alone.get("/v1/recovery") as answer:
        (report,) = (await answer.json())["recoveries"]
        assert (report["case"], report["outcome"], report["lv"]) == ("standalone", "done", 21)


async def test_standalone_node_starts_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """scenarios.md, "Recovery". It listens for readers and contacts no node: no name lookup, no connection, no
    datagram."""
    await fill(tmp_path / "f1")
    reached: list[str] = []
    loop = type(asyncio.get_running_loop())
    for name in ("create_connection", "create_datagram_endpoint", "getaddrinfo", "sock_connect", "sock_sendto"):

        def out_of_reach(*_: Any, name: str = name, **__: Any) -> Any:
            reached.append(name)
            raise OSError("Network is unreachable")

        monkeypatch.setattr(loop, name, out_of_reach)
    node = StandaloneNode(config_of(tmp_path / "f1"))
    await node.start()
    await asyncio.sleep(0.05)
    await node.stop()
    report = kept_report(tmp_path / "f1")
    assert report is not None
    assert (report["case"], report["outcome"], report["bytes_fetched"]) == ("standalone", "done", 0)
    assert reached == []


async def test_standalone_node_is_never_ready_and_refuses_cluster_requests(alone: ClientSession) -> None:
    async with alone.get("/readyz") as answer:
        assert answer.status == 503
    async with alone.get("/livez") as answer:
        assert (answer.status, answer.headers["Palisade-Standalone"]) == (200, "true")
    for method, path in (
        ("PUT", "/v1/kv/a"), ("DELETE", "/v1/kv/a"), ("POST", "/v1/compact"), ("GET", "/v1/watch?prefix=/"),
        ("GET", "/v1/members"),
    ):  # fmt: skip
        async with alone.request(method, path) as answer:
            problem = await answer.json()
            assert (answer.status, problem["code"], problem["retry"]) == (503, "standalone", False), path
            assert answer.headers["Palisade-Standalone"] == "true"
    async with alone.post("/v3/kv/range", json={}) as answer:
        assert (answer.status, (await answer.json())["code"]) == (503, 14)


@pytest.mark.parametrize("command", ["get /a", "get /a --prefix", "fencing", "topology"])
async def test_command_at_a_standalone_node_is_refused_in_its_own_terms(alone: ClientSession, command: str) -> None:
    """It was "GET /v1/fenced//a is not served in standalone mode"."""
    at = str(alone._base_url).removeprefix("http://").rstrip("/")
    done = await asyncio.to_thread(CliRunner().invoke, main, [*command.split(), "--at", at])
    assert done.exit_code == 1
    assert f"palisade: the node at {at} runs with --standalone, without its cluster and without a fence" in done.stderr
    assert f"GET http://{at}/v1/kv/KEY reads the vault" in done.stderr


async def test_standalone_node_shows_metrics_paths_and_its_recovery(alone: ClientSession) -> None:
    async with alone.get("/metrics") as answer:
        text = await answer.text()
        lines = text.splitlines()
        for line in (
            "palisade_vault_revision 21.0", "palisade_ready 0.0", "palisade_recovery_running 0.0",
            'palisade_recovery_case{case="standalone"} 1.0', "palisade_recoveries_total 1.0",
        ):  # fmt: skip
            assert line in lines
        assert differences("--standalone", text, absent=["palisade_recovery_acceptable_difference"]) == []
    async with alone.get("/openapi.json") as answer:
        paths = (await answer.json())["paths"]
        assert {"/v1/range", "/v1/recovery", "/metrics"} <= paths.keys()
        assert not {"/v1/put", "/v1/scenarios", "/v1/topology", "/v1/recovery/catch-up-difference"} & paths.keys()
        assert paths["/v1/kv/{key}"].keys() == {"get"}
    async with alone.get("/v1/recovery") as answer:
        found = await answer.json()
        assert (found["under_way"], found["catch_up_difference"], found["begun"]) == (None, None, 1)


async def test_standalone_node_refuses_writes_and_scenarios(alone: ClientSession) -> None:
    """Scenarios start processes, and there is no cluster to catch up with (issue 3)."""
    for method, path in (
        ("PUT", "/v1/recovery/catch-up-difference"), ("POST", "/v1/scenarios/join"), ("GET", "/v1/scenarios"),
        ("POST", "/v1/txn"), ("GET", "/v1/topology"), ("POST", "/v1/status"),
    ):  # fmt: skip
        async with alone.request(method, path) as answer:
            problem = await answer.json()
            assert (answer.status, problem["code"]) == (503, "standalone"), path
            assert f"{method} {path} is not served in standalone mode" in problem["detail"]


async def test_vault_has_one_readable_revision(alone: ClientSession) -> None:
    for revision, code in ((21, None), (20, "compacted"), (22, "future-revision")):
        async with alone.get(f"/v1/kv/%2Fcatalog%2Ftables%2Ft7?revision={revision}") as answer:
            assert (None if answer.status == 200 else (await answer.json())["code"]) == code


@pytest.mark.parametrize(
    ("query", "code"),
    [("key=", "key-empty"), ("key=" + "k" * 4097, "key-too-large"), ("key=a&range_end=" + "k" * 4097, "key-too-large")],
    ids=["empty", "long", "long end"],
)
async def test_invalid_key_is_refused_as_by_a_member(alone: ClientSession, query: str, code: str) -> None:
    """For an empty key the error was that the vault could not be read (docs/bugs-found.md)."""
    async with alone.get(f"/v1/kv?{query}") as answer:
        assert answer.status in (400, 413)
        assert (await answer.json())["code"] == code


async def test_standalone_node_leaves_the_vault_unchanged(tmp_path: Path) -> None:
    await fill(tmp_path / "f1")
    node = StandaloneNode(config_of(tmp_path / "f1"))
    await node.start()
    await node.stop()
    vault = open_vault(tmp_path / "f1" / "vault")
    assert (vault.revision, vault.key_count) == (21, 20)
    vault.close()
    report = kept_report(tmp_path / "f1")
    assert report is not None
    assert report_lines(report)[0].startswith("f1: case standalone, done")


async def test_standalone_node_without_a_vault_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(VaultForeign, match="there is no vault"):
        StandaloneNode(config_of(tmp_path / "f1"))
    assert not (tmp_path / "f1").exists()


async def test_vault_without_a_state_is_refused_and_reported(tmp_path: Path) -> None:
    claim_data_dir(tmp_path / "f1", cluster="c1", node="f1")
    open_vault(tmp_path / "f1" / "vault").close()
    node = StandaloneNode(config_of(tmp_path / "f1"))
    with pytest.raises(RecoveryRefused, match="has no state of the cluster"):
        await node.start()
    await node.stop()
    report = kept_report(tmp_path / "f1")
    assert report is not None
    assert (report["outcome"], report["reason"]) == ("refused", "standalone-empty")


def test_standalone_needs_nothing_that_names_other_nodes(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    assert config.listening() == {"http": config.http}
    given = {"id": "f1", "cluster": "c1", "data-dir": "d", "http": "127.0.0.1:7401", "follow": "true"}
    assert load_node_config({**given, "standalone": "true"}, environ={}).http == Address("127.0.0.1", 7401)


def test_unwritable_report_does_not_stop_the_node(tmp_path: Path) -> None:
    keep_report(tmp_path / "gone")(RecoveryReport("f1"))
    assert kept_report(tmp_path / "gone") is None


def test_command_shows_the_report_in_a_data_folder(tmp_path: Path) -> None:
    """R12, on the command line: also for a node that has refused to start."""
    report = RecoveryReport(
        "f1", RecoveryOutcome.REFUSED, Case.D, Case.D, "ahead", lv_before=9, lv=9, lm=5, mm=1, error="why"
    )
    keep_report(tmp_path)(report)
    shown = CliRunner().invoke(main, ["recovery", "--data-dir", str(tmp_path)])
    assert (shown.exit_code, shown.output.splitlines()[0]) == (0, "f1: case d, refused in 0.00 s: ahead")
    as_json = CliRunner().invoke(main, ["recovery", "--data-dir", str(tmp_path), "--json"])
    assert json.loads(as_json.output) == {"recoveries": [json.loads(json.dumps(report.as_dict()))]}
    (tmp_path / "recovery.json").write_text("[]")
    assert CliRunner().invoke(main, ["recovery", "--data-dir", str(tmp_path)]).exit_code == 1
    assert CliRunner().invoke(main, ["recovery"]).exit_code == 2
    assert CliRunner().invoke(main, ["recovery", "--at", f"127.0.0.1:{free_port()}"]).exit_code == 3
