"""Wrong arguments are refused before anything is sent, in plain words and with the way out."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from palisade.cli.lock import elect
from palisade.cli.main import main
from tests.support.cli_node import CliNode

HUGE = "99999999999999999999999999"
NOWHERE = "127.0.0.1:9"


def invoke(*arguments: str, stdin: str | None = None, endpoint: str = NOWHERE) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin, env={"PALISADE_ENDPOINTS": endpoint}, prog_name="palisade")


EMPTY = "is empty; give a name"
DAY = ("--from", "2013-03-01", "--to", "2013-03-02")
ROWS = ("segments", "realtime", "append", "s", __file__, *DAY, "--column", "id:int")
JOURNAL = ("--copies", NOWHERE, "--timeout", "3600", "x")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((*ROWS, "--node", "n1", "--writer", ""), f"'--writer': {EMPTY}"),
        ((*ROWS, "--node", ""), f"'--node': {EMPTY}"),
        (("segments", "assign", "--nodes", ""), f"'--nodes': {EMPTY}"),
        (("segments", "assign", "--nodes", ","), "--nodes: give at least one name"),
        (("segments", "set-replicas", "s", "0", ""), f"'[SEGMENT]...': {EMPTY}"),
        (("segments", "set-replicas", "s", "0", "--from", "", "--to", ""), "'--from': '' is no day"),
        (("segments", "realtime", "give-up", "s/0", "--reason", " "), "'--reason': is empty; give a reason"),
        (("query", "count", "", *DAY), f"'DATA_SOURCE': {EMPTY}"),
        (("member", "transfer", ""), f"'[NAME]': {EMPTY}"),
        (("region", "delete", ""), f"'NAME': {EMPTY}"),
        (("catalog", "create-database", "d", "--procedure", ""), f"'--procedure': {EMPTY}"),
        (("ls", "--user", ""), f"'--user': {EMPTY}"),
        (("ls", "--token-file", ""), f"'--token-file': {EMPTY}"),
        (("journal", "append", "--role", "", *JOURNAL), "'--role': invalid name '': use 1 to 64 of A-Z"),
        (("activation", "show", ""), "'ROLE': invalid name '': use 1 to 64 of A-Z"),
        (("activation", "show", "orders", "--copy", ""), f"'--copy': {EMPTY}"),
        (("backup", ""), "'FILE': is empty; give a file name"),
        (("backup", "", "--verify"), "'FILE': is empty; give a file name"),
        (("restore", "", "--data-dir", "d"), "'FILE': is empty; give a file name"),
        (("restore", "f", "--data-dir", ""), "'--data-dir': is empty; give a path"),
        (("recover-quorum", "--data-dir", ""), "'--data-dir': is empty; give a path"),
        (("recovery", "--data-dir", ""), "'--data-dir': is empty; give a path"),
        (("load", ""), "'WHAT': is empty; give flights or a file name"),
        (("load", "flights", "--data", ""), "'--data': is empty; give a path"),
        (("put", "k", "--file", ""), "'--file' / '-f': is empty; give a path"),
        (("txn", ""), "'[FILE]': is empty; give a path"),
        (("segments", "publish", "s", ""), "'FILE': is empty; give a path"),
        (("segments", "realtime", "append", "s", "", *DAY, "--column", "id:int"), "'FILE': is empty; give a path"),
        (("vault", "export", "", "--data-dir", "d"), "'FILE': is empty; give a file name"),
        (("vault", "inspect", "--data-dir", ""), "'--data-dir': is empty; give a path"),
        (("up", "--data-dir", ""), "'--data-dir': is empty; give a path"),
        (("up", "--config", ""), "'--config': is empty; give a path"),
        (("login", "--user", "u", "--token-file", ""), "'--token-file': is empty; give a path"),
        (("journal", "serve", "--role", "r", "--name", "a", "--dir", ""), "'--dir': is empty; give a path"),
        (("activation", "force", "r", "--copy", ""), "'--copy': is empty; give a path"),
        (("man", ""), "'DIRECTORY': is empty; give a path"),
    ],
)
def test_empty_value_is_refused_before_anything_is_sent(arguments: tuple[str, ...], text: str) -> None:
    """It counted as an option that was not given: with an unset variable of a script, `member transfer ""` moved the
    leadership, `set-replicas s 0 --from "" --to ""` changed all segments, and `query count ""` ended with a traceback.
    An empty path was the current folder: `backup ""` was refused with `. is a folder`.
    """
    result = invoke(*arguments)
    assert (result.exit_code, text in result.stderr) == (2, True), result.output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("get", "/a", "--revision", "abc"), "'abc' is not a whole number"),
        (("get", "/a", "--revision", HUGE), f"{HUGE} does not fit in 64 bits"),
        (("get", "/a", "--revision", "-1"), "-1 is out of range; give 0 or more"),
        (("get", "/a", "--limit", HUGE), f"{HUGE} does not fit in 64 bits"),
        (("range", "/a", "--limit", "1.5"), "'1.5' is not a whole number"),
        (("watch", "/a", "--start-revision", HUGE), f"{HUGE} does not fit in 64 bits"),
        (("compact", HUGE), f"{HUGE} does not fit in 64 bits"),
        (("compact", "0"), "0 is out of range; give 1 or more"),
        (("get", "/a", "--timeout", "soon"), "'soon' is not a number"),
        (("get", "/a", "--timeout", "nan"), "nan is out of range; give 0.01 to 3600"),
        (("catalog", "procedures", "--limit", "1001"), "1001 is out of range; give 1 to 1000"),
        (("up", "--nodes", "many"), "'many' is not a whole number"),
        (("restore", "b", "--data-dir", "d", "--generation", "0"), "0 is out of range; give 1 to 9007199254740992"),
        (("restore", "b", "--data-dir", "d", "--nodes", "10"), "10 is out of range; give 1 to 9"),
        (("up", "--base-port", "99999"), "'--base-port': 99999 is out of range; give 1024 to 65226"),
        (("lease", "grant", "--id", "0", "10"), "'--id': 0 is out of range; give 1 to 9223372036854775807"),
        (("init", "n1", "n2", "n1"), "n1: named twice in MEMBERS; name each node once"),
        (("init", "n1", ""), "MEMBERS: '' is not a name; use 1 to 63 letters"),
        (("lease", "grant", "0"), "0 is out of range; give more than 0 seconds"),
        (("lease", "grant", "1e99"), "1e99 is out of range; give 0.1 to 9000000000 seconds"),
        (("lease", "grant", "1e-9"), "1e-9 is out of range; give 0.1 to 9000000000 seconds"),
        (("lease", "grant", "nan"), "'nan' is not a time"),
        (("lock", "/l", "--ttl", "1e99", "--", "true"), "1e99 is out of range; give 0.1 to 9000000000 seconds"),
        (("lock", "/l", "--wait", "1e99", "--", "true"), "1e99 is out of range; give 0 to 31536000"),
        (("lock", "/l", "--wait", "nan", "--", "true"), "nan is out of range; give 0 to 31536000"),
        (("elect", "/l", "n1", "--ttl", "1e99"), "1e99 is out of range; give 0.1 to 9000000000 seconds"),
        (("lock", "", "--", "echo", "x"), "the name is empty; give one, such as /locks/compaction"),
        (("elect", "", "n1"), "the name is empty; give one, such as /locks/compaction"),
        (("elect", "", "--listen"), "the name is empty; give one, such as /locks/compaction"),
        (("elect", "/l", "--", "echo", "x"), "VALUE is missing: it stands before --, as in 'palisade elect /leader/"),
        (("elect", "/l", "--ttl", "5", "--", "echo", "x"), "VALUE is missing: it stands before --"),
        (("elect", "/l", "--listen", "--", "x"), "give either VALUE or --listen"),
        (("segments", "lookup", "s", "--from", "a", "--to", "b"), "'--from': 'a' is no day such as 2013-03-01 and no"),
        (("query", "count", "s", "--from", "2013-01-01", "--to", "b"), "'--to': 'b' is no day such as 2013-03-01"),
        (("segments", "mark-unused", "s", "--from", "a"), "'--from': 'a' is no day such as 2013-03-01 and no time"),
        (("region", "set", "x", "/x/", "--policy", "safe_default"), "the policy safe_default needs --default"),
    ],
)
def test_wrong_argument_is_named_in_plain_words(arguments: tuple[str, ...], text: str) -> None:
    """An empty name of a lock and a number of more than 64 bits ended with a traceback; click's own words were "is not
    a valid integer range"."""
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert text in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (f"compare\n version /a = {HUGE}\nsuccess\n get /a\n", f"operand {HUGE} does not fit in 64 bits"),
        (f"success\n put /a b lease={HUGE}\n", f"lease {HUGE} does not fit in 64 bits"),
        (f'{{"compare": [{{"target": "mod", "key": "/a", "operand": -{HUGE}}}]}}', "does not fit in 64 bits"),
        (f'{{"success": [{{"put": {{"key": "/a", "value": "b", "lease": {HUGE}}}}}]}}', "does not fit in 64 bits"),
        (f'{{"success": [{{"range": {{"key": "/a", "limit": "0x{HUGE}"}}}}]}}', "does not fit in 64 bits"),
    ],
)
def test_number_of_more_than_64_bits_in_a_transaction_is_refused(form: str, text: str) -> None:
    result = invoke("txn", stdin=form)
    assert result.exit_code == 2, result.output
    assert text in result.stderr


@pytest.mark.parametrize("command", [("get",), ("get", "--keys-only"), ("range",), ("del",), ("del", "--from-key")])
def test_empty_key_names_the_way_to_all_keys(node: CliNode, command: tuple[str, ...]) -> None:
    """The message named the byte 0x00 as the end, which cannot be typed in a shell."""
    name, *options = command
    result = invoke(name, "", *options, endpoint=node.endpoint)
    assert (result.exit_code, result.stderr) == (1, "palisade: the key is empty; for all keys give '' --prefix\n")
    invoke("put", "/a", "1", endpoint=node.endpoint)
    assert invoke(name, "", "--prefix", endpoint=node.endpoint).exit_code == 0


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("lease grant -5", "-5 is out of range; give more than 0 seconds"),
        ("lease grant -1.5s --id 7", "-1.5s is out of range; give more than 0 seconds"),
        ("lease revoke -5", "-5 is out of range"),
        ("compact -1", "-1 is out of range; give 1 or more"),
        ("compact 5 --unknown", "No such option '--unknown'"),
        ("get /a --prefi", "Did you mean '--prefix'? See '"),
        ("put /a -5", "-5 is not an option; an argument that begins with - goes after --"),
    ],
)
def test_negative_number_is_out_of_range_and_not_an_unknown_option(command: str, text: str) -> None:
    result = CliRunner().invoke(main, command.split())
    assert (result.exit_code, text in result.stderr) == (2, True), result.stderr


def test_empty_key_has_advice_that_fits_the_command(node: CliNode) -> None:
    """A put was advised to give the prefix '', a watch the byte 0x00."""
    refused = invoke("put", "", "x", endpoint=node.endpoint)
    assert (refused.exit_code, refused.stderr) == (1, "palisade: the key is empty: a key has at least one byte\n")
    refused = invoke("watch", "", endpoint=node.endpoint)
    assert (refused.exit_code, refused.stderr) == (1, "palisade: the key is empty; for all keys give '' --prefix\n")


def test_read_from_the_empty_key_on_begins_at_the_first_key(node: CliNode) -> None:
    """As with --at and in etcdctl; it was refused."""
    invoke("put", "/a", "1", endpoint=node.endpoint)
    for arguments in (("get", "", "--from-key"), ("range", "", "--from-key"), ("range", "", "/b")):
        assert "/a\t1\t" in invoke(*arguments, endpoint=node.endpoint).stdout


def test_region_of_all_keys_is_shown_as_such(node: CliNode) -> None:
    """It was "region x:  is strict"."""
    found = invoke("region", "set", "x", "", endpoint=node.endpoint)
    assert found.stdout.startswith("region x: all keys are strict, fail_closed; revision ")
    found = invoke("region", "set", "x", "/x/", "--policy", "safe_default", "--default", "", endpoint=node.endpoint)
    assert found.stdout.startswith("region x: /x/ is strict, safe_default; revision ")


def test_message_that_names_a_command_has_no_second_hint(tmp_path: Path) -> None:
    """It was "see 'palisade lease list'; see 'palisade lease revoke --help'"."""
    (tmp_path / "records").write_text("{}")
    for arguments, end in (
        (("txn",), "the transaction is empty; 'palisade txn --help' shows an example"),
        (("lease", "revoke", "abc"), "see 'palisade lease list'"),
        (("segments", "publish", "flights", str(tmp_path / "records")), "see 'palisade segments publish --help'"),
        (("get",), "see 'palisade get --help'"),
    ):
        result = invoke(*arguments, stdin="")
        assert result.exit_code == 2
        assert result.stderr.rstrip().endswith(end)
        assert result.stderr.count("'palisade ") == 1


def test_man_into_what_is_no_folder_says_so() -> None:
    """The reason was "File exists"."""
    refused = CliRunner().invoke(main, ["man", "/dev/null"])
    assert (refused.exit_code, refused.stderr) == (
        1,
        "palisade: /dev/null can't be written: it is not a folder; give another folder\n",
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("user grant-permission bob own /x", "Invalid value for 'PRIVILEGE': 'own' is not one of 'read', 'write', "),
        ("catalog list planes", "Invalid value for 'COLLECTION': 'planes' is not one of 'databases', "),
        ("completion", "Missing argument 'SHELL'"),
    ],
)
def test_argument_with_choices_is_named(words: str, text: str) -> None:
    """It was named '{read|write|catalog|admin}', which repeated the choices."""
    result = invoke(*words.split())
    assert (result.exit_code, text in result.stderr, "|" in result.stderr) == (2, True, False), result.stderr


@pytest.mark.parametrize(
    ("words", "value", "command"),
    [
        ("/l n1 -- run --all", b"n1", ("run", "--all")),
        ("/l n1 --ttl 5 -- run -- x", b"n1", ("run", "--", "x")),
        ("/l n1 run x", b"n1", ("run", "x")),
        ("/l -- -1 run", b"-1", ("run",)),
        ("-- /l -1 run", b"-1", ("run",)),
    ],
)
def test_elect_takes_value_and_command_from_their_places(words: str, value: bytes, command: tuple[str, ...]) -> None:
    given = elect.make_context("elect", words.split()).params
    assert (given["value"], given["command"]) == (value, command)


def test_elect_shows_its_help_before_a_command() -> None:
    assert invoke("elect", "/l", "--help", "--", "run").exit_code == 0
