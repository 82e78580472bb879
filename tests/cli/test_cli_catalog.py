"""palisade catalog: operations made from their fields, what is listed and shown, JSON, exit codes (issue 4)."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from palisade.catalog.operations.all import KINDS
from palisade.cli.catalog import catalog, parts_of, property_of
from palisade.cli.main import main
from palisade.raftgroup.errors import Unavailable
from tests.support.cli_node import CliNode, cli_node

catalog_module: Any = importlib.import_module("palisade.cli.catalog")
Run = Callable[..., Result]
NO_ROWS = "name\twhat\trevision\n"
REFUSED, USAGE, UNAVAILABLE, UNKNOWN = 1, 2, 3, 4


@pytest.fixture
def node() -> Iterator[CliNode]:
    with cli_node(deadline_s=2.0) as node:
        yield node


@pytest.fixture
def run(node: CliNode) -> Run:
    def invoke(*arguments: str, stdin: str | None = None, exit_code: int = 0) -> Result:
        found = CliRunner().invoke(
            main, ["catalog", *arguments], input=stdin, env={"PALISADE_ENDPOINTS": node.endpoint}
        )
        assert "Traceback" not in found.output
        assert found.exit_code == exit_code, (found.output, found.exception)
        return found

    return invoke


def made(run: Run) -> None:
    run("create-database", "plant", "--property", "owner=ops")
    run("create-table", "plant.readings", "--column", "machine:string:tag", "--column", "pressure:int32")


def said(result: Result) -> Any:
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("create-table plant.t --column a:int32 --column b:wrong", "--column b:wrong, type: 'wrong' is not one of"),
        ("create-table plant. --column a:int32", "TABLE: invalid path 'plant.': "),
        ("create-table plant.t --column a:int32 --column a:int32", "--column: a is given twice"),
        ("create-database plant2 --property a/b=1", "--property, name: invalid name 'a/b': "),
        ("create-device plant.d --series a:int32:no", "--series a:int32:no, encoding: 'no' is not one of "),
        ("set-ttl plant 0", "TTL_MS: "),
        ("add-column plant.readings c int32 --category no", "--category: 'no' is not one of "),
        ("delete-series plant.d a b/", "SERIES b/: invalid "),
    ],
)
def test_refused_field_is_named_as_it_was_typed(run: Run, command: str, error: str) -> None:
    """The errors named fields of the API, such as columns[0].type."""
    made(run)
    refused = run(*command.split(), exit_code=REFUSED).stderr
    assert refused.startswith(f"palisade: {error}"), refused


def test_every_operation_is_a_command_with_its_help() -> None:
    for name, kind in KINDS.items():
        command = catalog.commands[name]
        assert command.short_help == kind.help
        assert {field.name for field in kind.fields} <= {each.name for each in command.params}
        shown = CliRunner().invoke(main, ["catalog", name, "--help"], terminal_width=1000, max_content_width=1000)
        assert shown.exit_code == 0
        assert kind.help in shown.stdout
        assert all(field.help in shown.stdout for field in kind.fields if field.shape != "password"), name


def test_table_is_created_altered_listed_shown_and_dropped(run: Run) -> None:
    made(run)
    assert run("add-column", "plant.readings", "note", "text").stdout.startswith("add-column: done at revision ")
    run("alter-column-type", "plant.readings", "pressure", "int64")
    run("set-table-properties", "plant.readings", "--property", "owner=ops", "--property", "unused")
    line = run("list", "tables").stdout.splitlines()[1].split("\t")
    assert line[:2] == ["plant.readings", "machine string, pressure int64, note text [owner=ops]"]
    assert said(run("show", "tables", "plant.readings"))["columns"][0]["category"] == "tag"
    assert said(run("drop-table", "plant.readings", "--json"))["state"] == "done"
    assert run("list", "tables").stdout == NO_ROWS
    assert run("show", "tables", "plant.readings", exit_code=REFUSED).stderr.startswith("palisade: there is no ")


def test_devices_templates_views_and_ttl(run: Run) -> None:
    made(run)
    run("create-device", "plant.l.p", "--series", "heat:int32:rle:zstd", "--series", "flow:double", "--aligned")
    run("alter-encoding", "plant.l.p", "heat", "--compression", "lz4")
    run("create-template", "meter", "--series", "volts:double")
    run("set-template", "meter", "plant.m")
    run("activate-template", "plant.m.m1")
    run("create-view", "plant.v", "plant.l.p.heat")
    run("set-ttl", "plant.readings", "60000")
    devices = [line.split("\t")[:2] for line in run("list", "devices").stdout.splitlines()[1:]]
    assert devices == [["plant.l.p", "heat int32, flow double"], ["plant.m.m1", "template meter"]]
    assert run("list", "devices", "--below", "plant.m").stdout.splitlines()[1].startswith("plant.m.m1\t")
    assert "kept for 60000 ms" in run("list", "ttl").stdout
    assert "view of plant.l.p.heat" in run("list", "views").stdout
    assert "template meter" in run("list", "template-paths").stdout
    run("delete-series", "plant.l.p", "heat", "flow")
    run("delete-devices", "plant.readings", "m1", "m2")
    run("drop-database", "plant")
    assert run("list", "devices").stdout == NO_ROWS


def test_password_is_never_an_argument_and_never_printed(run: Run) -> None:
    assert "8 to 256" in run("create-user", "alice", stdin="short\nshort\n", exit_code=REFUSED).stderr
    shown = run("create-user", "alice", "--json", stdin="correct horse\ncorrect horse\n").stdout
    run("set-password", "alice", "--password-file", "-", stdin="battery staple\n")
    run("create-role", "ops")
    run("grant-role", "ops", "alice")
    run("grant", "user:alice", "read", "/config/")
    shown += run("list", "users").stdout + run("procedures", "--json").stdout
    assert "role ops, read on /config/" in shown
    for secret in ("correct", "battery", "scrypt", "salt"):
        assert secret not in shown
    run("revoke", "user:alice", "read", "/config/")


def test_refusals_are_one_line_and_an_exit_code(run: Run) -> None:
    refused = run("create-table", "plant.readings", "--column", "a:text", exit_code=REFUSED)
    assert refused.stderr == "palisade: there is no database plant; see the list of databases\n"
    error = json.loads(run("drop-role", "ops", "--json", exit_code=REFUSED).stderr)["error"]
    assert error == {"code": "catalog-not-there", "message": "there is no role ops", "retry": False}
    run("create-table", "plant.readings", "--column", "a", exit_code=USAGE)
    assert "Missing option '--column'" in run("create-table", "plant.readings", exit_code=USAGE).stderr
    run("create-table", "plant", "--column", "a:text", exit_code=REFUSED)
    run("set-ttl", "plant", "soon", exit_code=REFUSED)
    run("list", "nothing", exit_code=USAGE)
    run("delete-devices", "plant.readings", exit_code=USAGE)


def test_pending_operation_names_its_procedure_and_the_nodes_it_waits_for(run: Run, node: CliNode) -> None:
    gate = asyncio.Event()

    async def released(revision: int) -> None:
        await gate.wait()

    releases = node.services.catalog.releases  # type: ignore[union-attr]
    node.do(lambda: setattr(releases, "released", released))
    node.do(lambda: setattr(releases, "waiting_for", lambda revision: ["n3"]))
    pending = run("create-role", "ops", "--procedure", "mine", "--wait", "0.5", exit_code=UNKNOWN)
    assert "create-role: started, prepared; waits for n3 to have revision" in pending.stderr
    assert "palisade catalog procedure mine" in pending.stderr
    assert run("procedures", "--open").stdout.splitlines()[1].split("\t")[:3] == ["mine", "create-role", "prepared"]
    lines = run("procedure", "mine").stdout.splitlines()
    assert lines[0] == "procedure mine: create-role prepared"
    assert lines[-1].startswith("  waits for n3 to have revision ")
    assert "already changed permissions" in run("cancel", "mine", exit_code=REFUSED).stderr
    run("create-database", "plant", "--procedure", "other", "--wait", "0")
    node.do(gate.set)
    assert run("create-role", "ops", "--procedure", "mine").stdout.startswith("create-role: done at revision")
    assert run("procedure", "mine").stdout.count("\n") == 6


def test_queued_operation_can_be_cancelled(run: Run, node: CliNode) -> None:
    gate = asyncio.Event()

    async def released(revision: int) -> None:
        await gate.wait()

    node.do(lambda: setattr(node.services.catalog.releases, "released", released))  # type: ignore[union-attr]
    run("create-database", "plant", "--procedure", "mine", "--wait", "0")
    assert run("cancel", "mine").stdout in ("procedure mine is rolled-back\n", "procedure mine is failed\n")
    node.do(gate.set)
    assert run("list", "databases").stdout == NO_ROWS
    assert (
        "the procedure was cancelled"
        in run("create-database", "plant", "--procedure", "mine", exit_code=REFUSED).stderr
    )


def test_arguments_are_split_into_parts() -> None:
    assert parts_of("a:text", ("name", "type", "category")) == {"name": "a", "type": "text"}
    assert property_of("a=b=c") == ("a", "b=c")
    assert property_of("a") == ("a", None)


def test_reason_of_a_client_that_notices_its_deadline_late_is_kept() -> None:
    """On a busy machine the outcome was called unknown, although no node had taken the operation (issue 16)."""

    async def late(_client: Any, _wait_s: float, timeout_s: float) -> Any:
        await asyncio.sleep(timeout_s + 0.3)
        raise Unavailable("n1: no leader")

    with pytest.raises(Unavailable, match="n1: no leader"):
        asyncio.run(catalog_module.begun(None, 0.1, "p1", lambda: 0.1, late))
