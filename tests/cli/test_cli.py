"""The client commands against a node in memory: what they print, their JSON, their exit codes, their refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from palisade.cli.main import main
from palisade.raftgroup.generations import judge_generation
from tests.support.cli_node import CliNode, cli_node

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def shared() -> Iterator[CliNode]:
    with cli_node() as node:
        yield node


@pytest.fixture
def node(shared: CliNode) -> Iterator[CliNode]:
    """The node, empty and healthy."""
    yield shared
    shared.do(lambda: vars(shared.group).update(leading=True, majority=True))
    CliRunner().invoke(main, ["del", "", "--prefix", "--endpoints", shared.endpoint])


@pytest.fixture
def run(node: CliNode) -> Run:
    def invoke(*arguments: str, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(main, arguments, input=stdin, env={"PALISADE_ENDPOINTS": node.endpoint})
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


def said(result: Result, exit_code: int = 0) -> Any:
    """The JSON that was printed."""
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def test_a_value_comes_back_byte_for_byte(run: Run) -> None:
    assert run("put", "/a", "x y").stdout.startswith("revision ")
    assert run("get", "/a").stdout == "x y"
    run("put", "/b", "--file", "-", stdin=b"\xff\x00\n")
    assert run("get", "/b").stdout_bytes == b"\xff\x00\n"
    assert said(run("get", "/b", "--json"))["kv"]["value_base64"] == "/wAK"


def test_a_put_shows_what_was_there_before(run: Run) -> None:
    run("put", "/a", "1")
    assert said(run("put", "/a", "2", "--prev-kv", "--json"))["prev_kv"]["value"] == "1"
    assert ", before: 2" in run("put", "/a", "3", "--prev-kv").stdout


def test_an_old_revision_can_be_read(run: Run) -> None:
    first = said(run("put", "/a", "1", "--json"))["revision"]
    run("put", "/a", "2")
    assert run("get", "/a", "--revision", str(first)).stdout == "1"


def test_a_key_that_is_not_there_is_exit_code_1_and_one_line(run: Run) -> None:
    result = run("get", "/none")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("palisade: there is no key /none")
    assert json.loads(run("get", "/none", "--json").stderr)["error"]["code"] == "key-not-found"


def test_a_range_prints_fields_between_tabs_for_pipes(run: Run) -> None:
    for key in ("/a/1", "/a/2", "/b"):
        run("put", key, f"v{key[-1]}")
    lines = [line.split("\t") for line in run("range", "/a/", "--prefix").stdout.splitlines()]
    assert [line[:3] for line in lines] == [["/a/1", "v1", "1"], ["/a/2", "v2", "1"]]
    assert run("range", "/", "--prefix", "--count-only").stdout == "3\n"
    assert [kv["key"] for kv in said(run("range", "/a/1", "/b", "--json"))["kvs"]] == ["/a/1", "/a/2"]
    assert [kv["key"] for kv in said(run("range", "/a/2", "--from-key", "--json"))["kvs"]] == ["/a/2", "/b"]
    sorted_ = said(run("range", "", "--prefix", "--sort", "create", "--order", "descend", "--json"))["kvs"]
    assert [kv["key"] for kv in sorted_] == ["/b", "/a/2", "/a/1"]


def test_a_limit_that_cuts_off_is_said(run: Run) -> None:
    run("put", "/a/1", "")
    run("put", "/a/2", "")
    result = run("range", "/a/", "--prefix", "--limit", "1")
    assert len(result.stdout.splitlines()) == 1
    assert "1 of 2" in result.stderr


def test_del_says_how_many(run: Run) -> None:
    run("put", "/a/1", "x")
    run("put", "/a/2", "y")
    answer = said(run("del", "/a/", "--prefix", "--prev-kv", "--json"))
    assert (answer["deleted"], [kv["value"] for kv in answer["prev_kvs"]]) == (2, ["x", "y"])
    assert run("del", "/a/", "--prefix").stdout.startswith("deleted 0")


def test_a_transaction_takes_the_branch_that_holds(run: Run, tmp_path: Path) -> None:
    form = "compare\n version /leader = 0\nthen\n put /leader n1\nelse\n get /leader\n"
    assert run("txn", stdin=form).stdout.splitlines()[0].startswith("then (every compare held), revision ")
    (tmp_path / "form").write_text(form)
    answer = said(run("txn", str(tmp_path / "form"), "--json"))
    assert answer["succeeded"] is False
    assert answer["results"][0]["range"]["kvs"][0]["value"] == "n1"


def test_a_transaction_that_cannot_be_read_is_wrong_usage(run: Run) -> None:
    result = run("txn", stdin="then\n drop /a")
    assert result.exit_code == 2
    assert "line 2: 'drop /a'" in result.stderr


def test_a_watch_goes_through_history_in_order(run: Run) -> None:
    first = said(run("put", "/w", "1", "--json"))["revision"]
    run("put", "/w", "2")
    run("del", "/w")
    result = run("watch", "/w", "--from-revision", str(first), "--revisions", "3", "--prev-kv", "--json")
    events = [json.loads(line)["events"][0] for line in result.stdout.splitlines()]
    assert [event["type"] for event in events] == ["put", "put", "delete"]
    assert [event["kv"].get("value") for event in events] == ["1", "2", None]
    assert events[2]["prev_kv"]["value"] == "2"
    lines = run("watch", "/w", "--from-revision", str(first), "--revisions", "1").stdout.splitlines()
    assert lines == [f"{first}\tput\t/w\t1"]


def test_leases_from_grant_to_revoke(run: Run) -> None:
    lease_id = run("lease", "grant", "60").stdout.strip()
    run("put", "/l", "x", "--lease", lease_id)
    info = said(run("lease", "ttl", lease_id, "--json"))
    assert (info["id"], info["granted_ttl_s"], info["keys"]) == (lease_id, 60, [{"key": "/l"}])
    assert said(run("lease", "list", "--json")) == {"leases": [lease_id]}
    assert run("lease", "keep-alive", lease_id, "--once").stdout == f"lease {lease_id}: 60 s\n"
    assert "is revoked" in run("lease", "revoke", lease_id).stdout
    assert run("get", "/l").exit_code == 1
    gone = run("lease", "keep-alive", lease_id, "--once", "--json")
    assert (gone.exit_code, json.loads(gone.stderr)["error"]["code"]) == (1, "lease-not-found")


def test_compaction_is_said_to_who_reads_below_it(run: Run) -> None:
    first = said(run("put", "/a", "1", "--json"))["revision"]
    last = said(run("put", "/a", "2", "--json"))["revision"]
    assert said(run("compact", str(last), "--json"))["minimal_revision"] == last
    result = run("get", "/a", "--revision", str(first))
    assert result.exit_code == 1
    assert str(last) in result.stderr
    assert run("watch", "/a", "--from-revision", str(first)).exit_code == 1


def test_status_has_a_row_per_node(run: Run, node: CliNode) -> None:
    rows = said(run("status", "--json"))["nodes"]
    assert [(row["id"], row["role"], row["ready"], row["url"]) for row in rows] == [
        ("n1", "leader", True, f"http://{node.http}")
    ]
    assert run("status").stdout.split("\t")[:2] == ["n1 *", "leader"]


def test_status_says_who_refuses_a_node_and_why(run: Run, node: CliNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(node.group.refusals, "n2", str(judge_generation("n1", 1, 2, "abc")))
    result = run("status")
    assert result.stderr.startswith("n2 refuses n1: n1 is of generation 1, and this cluster of generation 2")
    assert "start it with --join" in result.stderr


def test_members_come_and_go(run: Run) -> None:
    added = run("member", "add", "n4", "--incarnation", "i4", "--peer", "127.0.0.1:7504", "--learner")
    assert added.stdout == "n4 is a member: a learner\n"
    assert [each["role"] for each in said(run("member", "list", "--json"))["members"]] == ["voter", "learner"]
    assert run("member", "promote", "n4").stdout == "n4 is a voter\n"
    assert run("member", "transfer", "n4").stdout == "n4 leads now\n"
    assert run("member", "remove", "n4").exit_code == 0
    refused = run("member", "transfer", "n4", "--json")
    assert (refused.exit_code, json.loads(refused.stderr)["error"]["code"]) == (1, "membership-refused")


def test_lines_of_json_are_loaded(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "some.ndjson"
    file.write_text("".join(f'{{"key": "/n/{n}", "value": {{"n": {n}}}}}\n' for n in range(500)))
    assert said(run("load", str(file), "--json")) == {"entries": 500, "written": 500}
    assert run("get", "/n/7").stdout == '{"n":7}'


def test_one_bad_line_and_nothing_is_loaded(run: Run) -> None:
    result = run("load", "-", stdin='{"key": "/n", "value": "1"}\n{"key": ""}\n')
    assert result.exit_code == 1
    assert "line 2" in result.stderr
    assert "nothing was written" in result.stderr
    assert run("get", "/n").exit_code == 1


def test_the_demo_catalog_is_loaded_once(run: Run) -> None:
    first = said(run("load", "flights", "--json"))
    assert first["entries"] == first["written"] > 5_000
    run("del", "/catalog/planes/N10156")
    assert said(run("load", "flights", "--json")) == {"entries": first["entries"], "written": 1}
    assert said(run("load", "flights", "--json")) == {"entries": first["entries"], "written": 0}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("put", "k" * 5000, "x"), "key-too-large"),
        (("put", "", "x"), "key-empty"),
        (("get", "/a", "--revision", "999999999"), "future-revision"),
        (("put", "/a", "x", "--lease", "77"), "lease-not-found"),
        (("compact", "999999999"), "future-revision"),
        (("load", "/no/such/file"), "bad-input"),
        (("load", "flights", "--data", "/no/such/folder"), "bad-input"),
    ],
)
def test_a_refusal_is_exit_code_1_with_its_code(run: Run, arguments: tuple[str, ...], code: str) -> None:
    result = run(*arguments, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stderr)["error"]["code"] == code


@pytest.mark.parametrize(
    "arguments",
    [
        ("put", "/a"),
        ("put", "/a", "x", "--file", "-"),
        ("range", "/a", "/b", "--prefix"),
        ("put", "/a", "x", "--lease", "soon"),
        ("get", "/a", "--endpoints", "nowhere"),
        ("get", "/a", "--endpoints", ","),
        ("compact", "0"),
        ("lease", "grant", "0"),
        ("member", "add", "n4", "--incarnation", "i", "--peer", "x"),
        ("fly",),
    ],
)
def test_wrong_usage_is_exit_code_2(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_without_a_node_it_is_exit_code_3_in_time() -> None:
    for command in (["get", "/a"], ["watch", "/a"], ["status"]):
        result = CliRunner().invoke(main, [*command, "--endpoints", "127.0.0.1:9", "--deadline", "0.3"])
        assert result.exit_code == 3, command
        assert len(result.stderr.splitlines()) == 1
        assert "palisade up" in result.stderr


def test_without_a_leader_it_is_exit_code_3(run: Run, node: CliNode) -> None:
    node.do(lambda: setattr(node.group, "leading", False))
    result = run("get", "/a", "--deadline", "0.5", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stderr)["error"] | {"message": ""} == {"code": "unavailable", "message": "", "retry": True}


def test_a_lost_majority_is_exit_code_4(run: Run, node: CliNode) -> None:
    node.do(lambda: setattr(node.group, "majority", False))
    result = run("put", "/a", "x", "--deadline", "0.5", "--json")
    assert result.exit_code == 4
    assert json.loads(result.stderr)["error"]["code"] == "outcome-unknown"


def test_help_of_every_command_can_be_had() -> None:
    names = [[name] for name in main.commands] + [[]]
    for name in names:
        result = CliRunner().invoke(main, [*name, "--help"])
        assert result.exit_code == 0
        assert result.stdout.startswith("Usage:")


def test_help_imports_neither_server_nor_client() -> None:
    heavy = {"aiohttp", "lmdb", "pysyncobj", "rich", "uvloop"}
    code = f"import sys, palisade.cli.main; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
