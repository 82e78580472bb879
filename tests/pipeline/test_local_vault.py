"""Rows of a state from a vault on the same machine: equal to those of the network, whatever is written meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from palisade.client.sync_client import SyncClient
from palisade.pipeline import cluster, local_vault
from palisade.pipeline.batches import Columns
from palisade.pipeline.cluster import Pinned, count, fix, network_pages, pages
from palisade.pipeline.errors import RevisionGone, VaultNotRead
from palisade.pipeline.options import ReadOptions
from palisade.pipeline.page_columns import RowColumns
from palisade.pipeline.partitions import ReadPart, parts_of_state
from palisade.pipeline.vault_rows import VaultRows
from palisade.vault import slices
from palisade.vault.errors import UnknownPages
from palisade.vault.reader import VaultReader
from palisade.vault.slices import slice_of
from palisade.wire.auth_errors import PermissionDenied
from palisade.wire.scan_pages import ScannedRow, rows_of
from tests.support.row_pages import page_bytes
from tests.support.threaded_node import ThreadedNode
from tests.support.vault_ground import VaultGround


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_vault, "PATIENCE_S", 0.0)


@pytest.fixture
def ground(
    threaded: ThreadedNode, blocking: SyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[VaultGround]:
    """LMDB is not opened twice in one process: the readers share the vaults of the test."""
    ground = VaultGround(threaded, tmp_path / "vault")
    monkeypatch.setattr(local_vault, "VaultReader", lambda _: VaultReader.over(ground.vault))
    ground.write(blocking, 300)
    ground.follow()
    ground.serve()
    yield ground
    ground.vault.close()


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_vault, "slice_of", lambda *where: slice_of(*where, bytes_max=300))


def fixed(client: SyncClient, options: ReadOptions) -> tuple[Pinned, ReadPart]:
    pinned = fix(client, options, "test")
    return pinned, ReadPart(options.key, options.range_end, 0, pinned.revision, options.access.endpoints)


def rows(found: Iterable[bytes | VaultRows]) -> list[ScannedRow]:
    return [row for page in found for row in rows_of(page_bytes(page))]


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("bounds", [{}, {"keyFrom": "/k/0030", "keyTo": "/long/"}, {"prefix": "/long/"}])
def test_rows_are_the_state_at_the_revision_while_writes_go_on(
    ground: VaultGround, blocking: SyncClient, bounds: dict[str, str]
) -> None:
    """Between any two slices the vault moves on."""
    options = ground.options(vaultOnly="true", **bounds)
    pinned, part = fixed(blocking, options)
    wanted = rows(network_pages(options, pinned, part))
    found: list[ScannedRow] = []
    for page in pages(options, pinned, part):
        found += rows([page])
        ground.write(blocking, 3)
        ground.follow()
    assert found == wanted
    assert len(wanted) > 10
    assert rows(pages(options, *fixed(blocking, options))) == rows(network_pages(options, *fixed(blocking, options)))


@pytest.mark.usefixtures("small_slices")
def test_read_whose_vault_loses_its_lease_continues_over_the_network_or_fails(
    ground: VaultGround, blocking: SyncClient
) -> None:
    options = ground.options()
    pinned, part = fixed(blocking, options)
    wanted = rows(network_pages(options, pinned, part))
    reading = pages(options, pinned, part)
    found = rows([next(reading)])
    assert 0 < len(found) < len(wanted)
    ground.serve(0)
    ground.write(blocking, 20)
    assert [*found, *rows(reading)] == wanted
    ground.serve()
    reading = pages(ground.options(vaultOnly="true"), pinned, part)
    next(reading)
    ground.serve(0)
    with pytest.raises(VaultNotRead, match="the node is fenced"):
        next(reading)


def test_vault_is_read_without_the_network(
    ground: VaultGround, blocking: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing is written, the task requests no rows and no changes."""
    options = ground.options()
    pinned, part = fixed(blocking, options)
    wanted = rows(network_pages(options, pinned, part))
    monkeypatch.setattr(cluster, "network_pages", None)
    monkeypatch.setattr(SyncClient, "scan_changes", None)
    assert rows(pages(options, pinned, part)) == wanted


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("columns", ["key", "key,revision,version", "lease,create_revision"])
def test_read_without_values_decodes_and_requests_none(
    ground: VaultGround, blocking: SyncClient, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """Issue 18: neither from the vault, nor with the changes that are undone."""
    monkeypatch.setattr(RowColumns, "values", None)
    asked: list[bool] = []
    scan_changes = SyncClient.scan_changes

    def without_values(*where: Any, values: bool = True) -> Any:
        asked.append(values)
        return scan_changes(*where, values=values)

    monkeypatch.setattr(SyncClient, "scan_changes", without_values)
    options = ground.options(vaultOnly="true", columns=columns)
    pinned, part = fixed(blocking, options)
    schema = pa.schema([(name, pa.string() if name == "key" else pa.int64()) for name in columns.split(",")])
    wanted = batches(network_pages(options, pinned, part), schema)
    ground.write(blocking, 30)
    ground.follow()
    assert batches(pages(options, pinned, part), schema) == wanted
    assert len(wanted) > 10
    assert asked
    assert not any(asked)


def test_range_is_divided_by_the_keys_of_the_vault_without_a_count_by_a_node(
    ground: VaultGround, blocking: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node confirms only that the revision is retained. A vault that must not be read is not used."""
    for module in (slices, local_vault):
        monkeypatch.setattr(module, "STRIDE", 4)
    options = ground.options(vaultOnly="true")
    pinned, part = fixed(blocking, options)
    scan_counts, asked = SyncClient.scan_counts, list[bytes]()

    def asks(client: SyncClient, key: bytes, range_end: bytes, revision: int = 0) -> Any:
        asked.append(range_end)
        return scan_counts(client, key, range_end, revision)

    monkeypatch.setattr(SyncClient, "scan_counts", asks)
    keys, samples = count(blocking, options, pinned)
    assert asked == [options.key + b"\0"]
    wanted = rows(network_pages(options, pinned, part))
    assert len(wanted) <= keys < len(wanted) + 4
    parts = parts_of_state((options.key, options.range_end), pinned.revision, samples, 5, part.endpoints)
    assert len(parts) == 5
    assert [row for each in parts for row in rows(pages(options, pinned, each))] == wanted
    ground.serve(0)
    assert count(blocking, options, pinned)[0] == len(wanted)
    assert asked[1:] == [options.range_end]


def test_large_range_is_divided_by_the_pages_of_the_vault(
    ground: VaultGround, blocking: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No key is counted: the number of keys is an estimate."""
    monkeypatch.setattr(local_vault, "samples_of", None)
    for name in ("PAGES_PER_SAMPLE", "SAMPLES_MIN"):
        monkeypatch.setattr(slices, name, 1)
    blocking.put_many((b"/pages/%04d" % number, b"v" * 100) for number in range(1_000))
    ground.follow()
    options = ground.options(vaults=str(ground.folder), vaultOnly="true", prefix="/pages/")
    pinned, part = fixed(blocking, options)
    keys, samples = count(blocking, options, pinned)
    assert 700 < keys < 1_300
    parts = parts_of_state((options.key, options.range_end), pinned.revision, samples, 4, part.endpoints)
    found = [rows(pages(options, pinned, each)) for each in parts]
    assert all(150 < len(each) < 350 for each in found)
    assert [row.key for each in found for row in each] == [b"/pages/%04d" % number for number in range(1_000)]


def test_vault_with_pages_of_another_format_is_divided_by_its_keys(
    ground: VaultGround, blocking: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ground.options(vaults=str(ground.folder), vaultOnly="true")
    pinned, _ = fixed(blocking, options)
    wanted = count(blocking, options, pinned)

    def other(*_: Any, **__: Any) -> None:
        raise UnknownPages("a page of LMDB 1.0")

    monkeypatch.setattr(local_vault, "samples_of_pages", other)
    assert count(blocking, options, pinned) == wanted


@pytest.mark.usefixtures("small_slices")
def test_read_whose_changes_were_compacted_fails_clearly(
    ground: VaultGround, blocking: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changes after the revision can no longer be undone: the longest life of the pin has ended."""
    monkeypatch.setattr(cluster, "PinRenewal", lambda *_: lambda: None)
    options = ground.options(vaultOnly="true")
    pinned, part = fixed(blocking, options)
    reading = pages(options, pinned, part)
    next(reading)
    blocking.unpin(options.key, options.range_end, pinned.name)
    ground.write(blocking, 20)
    blocking.compact(blocking.put("last", "1").revision)
    ground.follow()
    with pytest.raises(RevisionGone, match="load the DataFrame again"):
        list(reading)


def test_error_of_the_last_renewal_of_a_pin_fails_the_task(
    ground: VaultGround, blocking: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thus a user who loses the right to read during a task gets no complete part, also if it is a single slice."""

    def denied(*_: Any) -> None:
        raise PermissionDenied("no read on /k/")

    options = ground.options(vaultOnly="true")
    pinned, part = fixed(blocking, options)
    monkeypatch.setattr(SyncClient, "pin", denied)
    with pytest.raises(PermissionDenied):
        list(pages(options, pinned, part))


def test_division_by_a_vault_fails_if_the_revision_was_compacted(ground: VaultGround, blocking: SyncClient) -> None:
    options = ground.options()
    pinned, _ = fixed(blocking, options)
    blocking.unpin(options.key, options.range_end, pinned.name)
    ground.write(blocking, 5)
    blocking.compact(blocking.put("last", "1").revision)
    with pytest.raises(RevisionGone, match="load the DataFrame again"):
        count(blocking, options, pinned)


def batches(found: Iterator[Any], schema: pa.Schema) -> list[Any]:
    columns = Columns(schema, "binary", failfast=False)
    return [row for page in found for row in columns.of_rows(page).to_pylist()]


def test_vault_behind_the_revision_is_waited_for(ground: VaultGround, blocking: SyncClient) -> None:
    ground.write(blocking, 20)
    options = ground.options(vaultOnly="true", timeoutMs="200")
    pinned, part = fixed(blocking, options)
    with pytest.raises(VaultNotRead, match=r"/nowhere is no folder .*; .*vault: .*revision"):
        list(pages(options, pinned, part))
    ground.follow()
    assert rows(pages(options, pinned, part)) == rows(network_pages(options, pinned, part))


def test_vault_of_another_cluster_is_not_read(
    blocking: SyncClient, threaded: ThreadedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = VaultGround(threaded, tmp_path / "vault", cluster_id="other")
    monkeypatch.setattr(local_vault, "VaultReader", lambda _: VaultReader.over(ground.vault))
    with closing(ground.vault):
        blocking.put("a", "1")
        ground.follow()
        ground.serve()
        options = ground.options(vaultOnly="true")
        with pytest.raises(VaultNotRead, match=r"the vault is of .*other"):
            list(pages(options, *fixed(blocking, options)))


def test_vault_of_a_node_that_is_down_is_passed_over(
    ground: VaultGround, blocking: SyncClient, threaded: ThreadedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it contains the revision."""
    down = VaultGround(threaded, tmp_path / "down")
    with closing(down.vault):
        down.follow()
        vaults = {str(each.folder): each.vault for each in (ground, down)}
        monkeypatch.setattr(local_vault, "VaultReader", lambda folder: VaultReader.over(vaults[folder]))
        options = ground.options(vaults=f"{down.folder},{ground.folder}", vaultOnly="true")
        pinned, part = fixed(blocking, options)
        assert rows(pages(options, pinned, part)) == rows(network_pages(options, pinned, part))
