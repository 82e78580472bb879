"""The client commands against a node in memory: output, JSON, exit codes, refusals."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from palisade.cli.main import main
from palisade.raftgroup.generations import judge_generation
from tests.support.cli_node import CliNode

Run = Callable[..., Result]


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


def printed(result: Result, exit_code: int = 0) -> Any:
    """The printed JSON."""
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def test_get_prints_the_value_byte_for_byte(run: Run) -> None:
    assert run("put", "/a", "x y").stdout.startswith("revision ")
    assert run("get", "/a").stdout == "x y"
    run("put", "/b", "--file", "-", stdin=b"\xff\x00\n")
    assert run("get", "/b").stdout_bytes == b"\xff\x00\n"
    assert printed(run("get", "/b", "--json"))["kv"]["value_base64"] == "/wAK"


def test_put_prints_the_previous_value(run: Run) -> None:
    run("put", "/a", "1")
    assert printed(run("put", "/a", "2", "--prev-kv", "--json"))["prev_kv"]["value"] == "1"
    assert ", before: 2" in run("put", "/a", "3", "--prev-kv").stdout


def test_get_reads_an_old_revision(run: Run) -> None:
    first = printed(run("put", "/a", "1", "--json"))["revision"]
    run("put", "/a", "2")
    assert run("get", "/a", "--revision", str(first)).stdout == "1"


def test_missing_key_is_exit_code_1_and_one_line(run: Run) -> None:
    result = run("get", "/none")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("palisade: there is no key /none")
    for key in ("a\nb", "a\nb" * 2):
        assert run("get", key).stderr.startswith(f"palisade: there is no key 0x{key.encode().hex()} (revision ")
    assert json.loads(run("get", "/none", "--json").stderr)["error"]["code"] == "key-not-found"


def test_range_prints_a_header_and_fields_between_tabs_in_a_pipe(run: Run) -> None:
    for key in ("/a/1", "/a/2", "/b"):
        run("put", key, f"v{key[-1]}")
    lines = [line.split("\t") for line in run("range", "/a/", "--prefix").stdout.splitlines()]
    assert [line[:3] for line in lines] == [["key", "value", "version"], ["/a/1", "v1", "1"], ["/a/2", "v2", "1"]]
    assert run("range", "/", "--prefix", "--count-only").stdout == "3\n"
    assert [kv["key"] for kv in printed(run("range", "/a/1", "/b", "--json"))["kvs"]] == ["/a/1", "/a/2"]
    assert [kv["key"] for kv in printed(run("range", "/a/2", "--from-key", "--json"))["kvs"]] == ["/a/2", "/b"]
    sorted_ = printed(run("range", "", "--prefix", "--sort", "create", "--order", "descend", "--json"))["kvs"]
    assert [kv["key"] for kv in sorted_] == ["/b", "/a/2", "/a/1"]


def test_limit_that_omits_keys_is_reported(run: Run) -> None:
    run("put", "/a/1", "")
    run("put", "/a/2", "")
    result = run("range", "/a/", "--prefix", "--limit", "1")
    assert len(result.stdout.splitlines()) == 2
    assert "1 of 2 keys" in result.stderr


def test_del_prints_the_number_of_keys(run: Run) -> None:
    run("put", "/a/1", "x")
    run("put", "/a/2", "y")
    answer = printed(run("del", "/a/", "--prefix", "--prev-kv", "--json"))
    assert (answer["deleted"], [kv["value"] for kv in answer["prev_kvs"]]) == (2, ["x", "y"])
    assert run("del", "/a/", "--prefix").stdout.startswith("deleted 0")


def test_transaction_executes_one_branch(run: Run, tmp_path: Path) -> None:
    form = "compare\n version /leader = 0\nsuccess\n put /leader n1\nfailure\n get /leader\n"
    assert run("txn", stdin=form).stdout.splitlines()[0].startswith("success (every compare held), revision ")
    (tmp_path / "form").write_text(form)
    answer = printed(run("txn", str(tmp_path / "form"), "--json"))
    assert answer["succeeded"] is False
    assert answer["results"][0]["range"]["kvs"][0]["value"] == "n1"


def test_transaction_that_cannot_be_parsed_is_wrong_usage(run: Run) -> None:
    result = run("txn", stdin="success\n drop /a")
    assert result.exit_code == 2
    assert "line 2: 'drop /a'" in result.stderr


def test_watch_prints_history_in_order(run: Run) -> None:
    first = printed(run("put", "/w", "1", "--json"))["revision"]
    run("put", "/w", "2")
    run("del", "/w")
    result = run("watch", "/w", "--start-revision", str(first), "--revisions", "3", "--prev-kv", "--json")
    events = [json.loads(line)["events"][0] for line in result.stdout.splitlines()]
    assert [event["type"] for event in events] == ["put", "put", "delete"]
    assert [event["kv"].get("value") for event in events] == ["1", "2", None]
    assert events[2]["prev_kv"]["value"] == "2"


def test_watch_that_ends_by_itself_leaves_nothing_on_stderr(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """stderr had the traceback of a task that the watch had cancelled (issue 16)."""
    first = printed(run("put", "/w", "1", "--json"))["revision"]
    result = run("watch", "/w", "--start-revision", str(first), "--revisions", "1")
    gc.collect()
    assert (result.stdout, result.stderr) == (f"{first}\tput\t/w\t1\n", "")
    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []


def test_leases_from_grant_to_revoke(run: Run) -> None:
    lease_id = run("lease", "grant", "60").stdout.strip()
    run("put", "/l", "x", "--lease", lease_id)
    info = printed(run("lease", "timetolive", lease_id, "--json"))
    assert (info["id"], info["granted_ttl_s"], info["keys"]) == (lease_id, 60, [{"key": "/l"}])
    assert printed(run("lease", "list", "--json")) == {"leases": [lease_id]}
    assert run("lease", "keep-alive", lease_id, "--once").stdout == f"lease {lease_id}: 60 s\n"
    assert run("lease", "revoke", lease_id).stdout.startswith(f"revoked lease {lease_id}, ")
    assert run("get", "/l").exit_code == 1
    gone = run("lease", "keep-alive", lease_id, "--once", "--json")
    assert (gone.exit_code, json.loads(gone.stderr)["error"]["code"]) == (1, "lease-not-found")


@pytest.mark.parametrize(("typed", "ttl_s"), [("1.5", 1.5), ("1.5s", 1.5), ("500ms", 0.5), ("2s", 2)])
def test_lease_grant_takes_fractions_of_a_second(run: Run, typed: str, ttl_s: float) -> None:
    granted = printed(run("lease", "grant", typed, "--json"))
    assert granted["ttl_s"] == ttl_s
    assert run("lease", "keep-alive", granted["id"], "--once").stdout == f"lease {granted['id']}: {ttl_s:g} s\n"


@pytest.mark.parametrize("typed", ["0", "-1s", "soon", "1m", "nan", "inf"])
def test_lease_time_that_is_none_is_refused(run: Run, typed: str) -> None:
    refused = run("lease", "grant", "--", typed)
    assert refused.exit_code == 2
    assert ("is out of range; give more than 0" if typed in ("0", "-1s") else "is not a time") in refused.stderr


def test_read_below_the_compacted_revision_is_refused(run: Run) -> None:
    first = printed(run("put", "/a", "1", "--json"))["revision"]
    last = printed(run("put", "/a", "2", "--json"))["revision"]
    assert printed(run("compact", str(last), "--json"))["minimal_revision"] == last
    result = run("get", "/a", "--revision", str(first))
    assert result.exit_code == 1
    assert str(last) in result.stderr
    assert run("watch", "/a", "--start-revision", str(first)).exit_code == 1


def test_status_has_a_row_per_node(run: Run, node: CliNode) -> None:
    rows = printed(run("status", "--json"))["nodes"]
    assert [(row["id"], row["role"], row["ready"], row["url"]) for row in rows] == [
        ("n1", "leader", True, f"http://{node.http}")
    ]
    assert run("status").stdout.splitlines()[1].split("\t")[:2] == ["n1 *", "leader"]


def test_status_names_the_member_that_refuses_a_node(run: Run, node: CliNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(node.group.refusals, "n2", str(judge_generation("n1", 1, 2, "abc")))
    result = run("status")
    assert result.stderr.startswith("n2 refuses n1: n1 is of generation 1, and this cluster of generation 2")
    assert "start it with --join" in result.stderr


def test_member_add_promote_transfer_remove(run: Run) -> None:
    added = run("member", "add", "n4", "--incarnation", "i4", "--peer", "127.0.0.1:7504", "--learner")
    assert added.stdout == "added member n4: a learner\n"
    assert [each["role"] for each in printed(run("member", "list", "--json"))["members"]] == ["voter", "learner"]
    assert run("member", "promote", "n4").stdout == "promoted n4: it is a voter\n"
    assert run("member", "transfer", "n4").stdout == "n4 is the leader\n"
    assert run("member", "remove", "n4").exit_code == 0
    refused = run("member", "transfer", "n4", "--json")
    assert (refused.exit_code, json.loads(refused.stderr)["error"]["code"]) == (1, "membership-refused")


def test_load_writes_lines_of_json(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "some.ndjson"
    file.write_text("".join(f'{{"key": "/n/{n}", "value": {{"n": {n}}}}}\n' for n in range(500)))
    assert printed(run("load", str(file), "--json")) == {"entries": 500, "written": 500}
    assert run("get", "/n/7").stdout == '{"n":7}'


def test_load_with_an_invalid_line_writes_nothing(run: Run) -> None:
    result = run("load", "-", stdin='{"key": "/n", "value": "1"}\n{"key": ""}\n')
    assert result.exit_code == 1
    assert "line 2" in result.stderr
    assert "nothing was written" in result.stderr
    assert run("get", "/n").exit_code == 1


@pytest.mark.parametrize("source", ["-", "file"])
def test_load_with_a_key_of_the_cluster_writes_nothing(run: Run, tmp_path: Path, source: str) -> None:
    """The node refused it after thousands of other keys had been written."""
    lines = '{"key": "/n", "value": "1"}\n{"key": "palisade/catalog/x", "value": "1"}\n'
    (tmp_path / "rows").write_text(lines)
    name = source if source == "-" else str(tmp_path / "rows")
    result = run("load", name, "--json", stdin=lines)
    error = json.loads(result.stderr)["error"]
    assert (result.exit_code, error["code"], error["retry"]) == (1, "reserved-key", False)
    assert error["message"] == (
        f"{name}: line 2: palisade/catalog/x: keys under palisade/ are the cluster's own; nothing was written"
    )
    assert run("get", "/n").exit_code == 1


def test_load_that_is_refused_reports_what_may_be_written(run: Run, tmp_path: Path) -> None:
    """It had exit code 1, and did not mention the entries of the lines before."""
    rows = [{"key": f"/n/{n}", "value": "x"} for n in range(3_000)] + [{"key": "k" * 5_000, "value": "x"}] * 2
    (tmp_path / "rows").write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, {"key": "/z", "value": "x"}]))
    result = run("load", str(tmp_path / "rows"))
    assert result.exit_code == 1
    assert re.search(r"; at least [1-3],\d{3} of 3,002 entries were written$", result.stderr.rstrip()), result.stderr


def test_load_of_the_demo_catalog_writes_missing_entries_only(run: Run) -> None:
    first = printed(run("load", "flights", "--json"))
    assert first["entries"] == first["written"] > 4_500
    assert first["published"] == 732
    again = {"entries": first["entries"], "published": 0}
    run("del", "/catalog/planes/N10156")
    assert printed(run("load", "flights", "--json")) == again | {"written": 1}
    assert printed(run("load", "flights", "--json")) == again | {"written": 0}


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
def test_refusal_is_exit_code_1_with_its_code(run: Run, arguments: tuple[str, ...], code: str) -> None:
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


def test_command_without_a_node_is_exit_code_3_in_time() -> None:
    for command in (["get", "/a"], ["watch", "/a"], ["status"]):
        result = CliRunner().invoke(main, [*command, "--endpoints", "127.0.0.1:9", "--timeout", "0.3"])
        assert result.exit_code == 3, command
        assert len(result.stderr.splitlines()) == 1
        assert "palisade up" in result.stderr


def test_command_without_a_leader_is_exit_code_3(run: Run, node: CliNode) -> None:
    node.do(lambda: setattr(node.group, "leading", False))
    result = run("get", "/a", "--timeout", "0.5", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stderr)["error"] | {"message": ""} == {"code": "unavailable", "message": "", "retry": True}


def test_write_without_a_majority_is_exit_code_4(run: Run, node: CliNode) -> None:
    node.do(lambda: setattr(node.group, "majority", False))
    result = run("put", "/a", "x", "--timeout", "0.5", "--json")
    assert result.exit_code == 4
    assert json.loads(result.stderr)["error"]["code"] == "outcome-unknown"


def test_every_command_has_help() -> None:
    names = [[name] for name in main.commands] + [[]]
    for name in names:
        result = CliRunner().invoke(main, [*name, "--help"])
        assert result.exit_code == 0
        assert result.stdout.startswith("Usage:")


def test_journal_read_imports_no_part_of_the_store() -> None:
    """All commands were imported: `palisade journal read` needed 2.3 s to start on a busy machine (issue 16)."""
    code = (
        "import sys; from palisade.cli.main import main; "
        "main(['journal', 'read', '--help'], standalone_mode=False); "
        "print([name for name in sys.modules if name.startswith(('palisade.client', 'palisade.catalog', "
        "'palisade.node', 'palisade.metastore.command_codec', 'palisade.metastore.requests'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_unknown_command_gets_a_suggestion_from_all_commands() -> None:
    refused = CliRunner().invoke(main, ["jornal", "read"])
    assert (refused.exit_code, "journal" in refused.stderr.replace("jornal", "")) == (2, True), refused.stderr


def test_help_imports_neither_server_nor_client() -> None:
    heavy = {"aiohttp", "lmdb", "pysyncobj", "rich", "uvloop"}
    code = (
        "import sys; from palisade.cli.main import main; main(['--help'], standalone_mode=False); "
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_command_imports_no_other_command() -> None:
    code = (
        "import sys, palisade.cli.main as root; root.main.commands['status'];"
        "print(sorted({'put', 'status'} & set(root.main.commands)), 'palisade.cli.status' in sys.modules,"
        " 'palisade.cli.kv' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['put', 'status'] True False\n"


def test_node_imports_nothing_that_only_extras_install() -> None:
    """It would not start without `palisade[segments]`, and with that take 0.3 s of CPU and 40 MB more."""
    modules = "palisade.cli.scenarios.all, palisade.node.run, palisade.node.member, palisade.node.follower"
    extras = {"matplotlib", "numpy", "opentelemetry", "pandas", "pyarrow", "pyspark"}
    code = f"import sys, {modules}; print(sorted({extras} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
