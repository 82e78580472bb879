"""A batch is published in one transaction, a batch of a streaming query exactly once (issue 18)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from palisade.client.sync_client import SyncClient
from palisade.metastore.limits import Limits
from palisade.pipeline.batch_steps import Contended
from palisade.pipeline.errors import BadOption
from palisade.pipeline.options import WriteTarget, target_of
from palisade.pipeline.sink_rows import RowsRejected, check_columns, write_of
from tests.support.written_batches import contents, publish

APPEND = WriteTarget(b"p/", False, "", "records/")
OVERWRITE = WriteTarget(b"p/", True, "", "records/")
WITH_REJECTS = WriteTarget(b"p/", False, "bad/", "records/")


def test_rows_of_all_tasks_become_one_revision(blocking: SyncClient) -> None:
    structs = [("p/c", {"delay": 3, "tags": ["x"]})]
    revision = publish(blocking, APPEND, [("p/a", "1")], [(b"p/b", bytearray(b"2"))], structs)
    assert contents(blocking) == {b"p/a": b"1", b"p/b": b"2", b"p/c": b'{"delay":3,"tags":["x"]}'}
    assert {kv.mod_revision for kv in blocking.range("p/", prefix=True).kvs} == {revision}


def test_deletes_are_rows_with_op(blocking: SyncClient) -> None:
    publish(blocking, APPEND, [("p/a", "1"), ("p/b", "2")])
    publish(blocking, APPEND, [("p/a", None, "delete"), ("p/c", "3", "put")])
    assert contents(blocking) == {b"p/b": b"2", b"p/c": b"3"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"key": None, "value": "v"}, "null or empty"),
        ({"key": "", "value": "v"}, "null or empty"),
        ({"key": "q/a", "value": "v"}, "does not begin with the prefix"),
        ({"key": "p/" + "k" * 5_000, "value": "v"}, "the limit is 4096"),
        ({"key": "p/a", "value": "v" * 1_100_000}, "the limit is 1048576"),
        ({"key": "p/a", "value": None}, "the value is null"),
        ({"key": 7, "value": "v"}, "the key is of type int"),
        ({"key": "p/a", "value": 7}, "the value is of type int"),
        ({"key": "p/a", "value": {"x": float("nan")}}, "is not JSON"),
        ({"key": "p/a", "value": "v", "op": "merge"}, "op is 'merge'"),
    ],
)
def test_row_that_cannot_be_written_has_a_reason(row: Mapping[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        write_of(row, b"p/", Limits())


def test_rejected_rows_fail_the_batch_or_go_to_the_rejects(blocking: SyncClient) -> None:
    with pytest.raises(RowsRejected, match=r"1 row cannot be written.*'q/x'.*rejectsPrefix"):
        publish(blocking, APPEND, [("p/a", "1"), ("q/x", "2")])
    assert contents(blocking) == {}
    publish(blocking, WITH_REJECTS, [("p/a", "1"), ("q/x", "2")])
    assert contents(blocking) == {b"p/a": b"1"}
    assert contents(blocking, "bad/") == {
        b"bad/t/000000": b'{"key": "q/x", "reason": "the key does not begin with the prefix \'p/\'"}'
    }


def test_rows_with_the_same_key_are_all_rejected(blocking: SyncClient) -> None:
    with pytest.raises(RowsRejected, match=r"2 rows.*p/a.*occurs 2 times"):
        publish(blocking, APPEND, [("p/a", "1"), ("p/b", "2")], [("p/a", "3")])
    publish(blocking, WITH_REJECTS, [("p/a", "1"), ("p/b", "2")], [("p/a", "3")])
    assert contents(blocking) == {b"p/b": b"2"}
    assert len(contents(blocking, "bad/")) == 2


def test_batch_of_a_query_is_published_once_however_often_it_is_repeated(blocking: SyncClient) -> None:
    """Also after a later change of the same key, and by another client that knows no request id."""
    assert publish(blocking, APPEND, [("p/a", "1")], query=("q", 0)) is not None
    assert publish(blocking, APPEND, [("p/a", "1")], query=("q", 0)) is None
    assert publish(blocking, APPEND, [("p/a", "2")], query=("q", 1)) is not None
    assert publish(blocking, APPEND, [("p/a", "1")], query=("q", 0)) is None
    assert contents(blocking) == {b"p/a": b"2"}
    assert contents(blocking, "records/") == {b"records/q": b'{"batch": 1, "cluster_id": "c", "generation": 1}'}
    assert publish(blocking, APPEND, [("p/b", "1")], query=("other", 0)) is not None


class Interrupted:
    """A client before whose transaction another writer acts."""

    def __init__(self, client: SyncClient, *acts: Any) -> None:
        self._client, self._acts = client, list(acts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def txn(self, *arguments: Any) -> Any:
        if self._acts:
            self._acts.pop(0)()
        return self._client.txn(*arguments)


def test_batch_that_a_second_driver_has_published_meanwhile_is_not_repeated(blocking: SyncClient) -> None:
    """The record is compared in the transaction itself; without that, both publish."""

    def other() -> None:
        publish(blocking, APPEND, [("p/a", "1")], query=("q", 0))
        blocking.put("p/a", "later")

    again = publish(Interrupted(blocking, other), APPEND, [("p/a", "1")], query=("q", 0))
    assert again is None
    assert contents(blocking) == {b"p/a": b"later"}


def test_overwrite_replaces_the_prefix_and_nothing_else(blocking: SyncClient) -> None:
    for key in ("o/x", "p/a", "p/b", "q/x"):
        blocking.put(key, "old")
    publish(blocking, OVERWRITE, [("p/b", "new"), ("p/c", "new")])
    assert contents(blocking, "") == {b"o/x": b"old", b"p/b": b"new", b"p/c": b"new", b"q/x": b"old"}


def test_overwrite_includes_keys_that_are_written_meanwhile(blocking: SyncClient) -> None:
    blocking.put("p/a", "old")
    late = Interrupted(blocking, lambda: blocking.put("p/late", "x"))
    publish(late, OVERWRITE, [("p/c", "new")])
    assert contents(blocking) == {b"p/c": b"new"}
    busy = Interrupted(blocking, *[lambda: blocking.put("p/late", "x")] * 5)
    with pytest.raises(Contended, match="nothing was written"):
        publish(busy, OVERWRITE, [("p/d", "new")])
    assert contents(blocking) == {b"p/c": b"new", b"p/late": b"x"}


@pytest.mark.parametrize("names", [["key"], ["value"], ["key", "value", "more"], []])
def test_columns_other_than_key_value_and_op_are_refused(names: list[str]) -> None:
    check_columns(["op", "key", "value"])
    with pytest.raises(BadOption, match="has the columns key, value"):
        check_columns(names)


def test_overwrite_needs_a_prefix() -> None:
    with pytest.raises(BadOption, match="give option prefix"):
        target_of({"endpoints": "n:1"}, True)
