"""What etcd refuses is refused here with the same status and code; in the same words, where it is no syntax error."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from tests.differential.compared import answer_of

pytestmark = pytest.mark.e2e

SAME_WORDS = [
    ("put", "{}"),
    ("put", ""),
    ("put", "null"),
    ("put", '{"key": 5}'),
    ("put", '{"key": true}'),
    ("put", '{"key": {}}'),
    ("put", '{"key": "Y"}'),
    ("put", '{"key": "_-8="}'),
    ("put", '{"key": "YQ"}'),
    ("put", '{"key": "Y Q="}'),
    ("put", '{"key": "YQ==YQ=="}'),
    ("put", '{"key": "YQ==", "lease": 5}'),
    ("put", '{"key": "YQ==", "lease": "123"}'),
    ("put", '{"key": "YQ==", "lease": -5}'),
    ("put", '{"key": "YQ==", "lease": 1e3}'),
    ("put", '{"key": "YQ==", "lease": 1.5}'),
    ("put", '{"key": "YQ==", "lease": "1.5"}'),
    ("put", '{"key": "YQ==", "lease": true}'),
    ("put", '{"key": "YQ==", "lease": ""}'),
    ("put", '{"key": "YQ==", "lease": {}}'),
    ("put", '{"key": "YQ==", "lease": 99999999999999999999999}'),
    ("put", '{"key": "YQ==", "prev_kv": "true"}'),
    ("put", '{"key": "YQ==", "prev_kv": 1}'),
    ("put", '{"key": "YQ==", "ignore_value": true, "value": "YQ=="}'),
    ("put", '{"key": "enp6", "ignore_value": true}'),
    ("put", '{"key": "enp6", "ignore_lease": true, "lease": 5}'),
    ("put", "[]"),
    ("put", "5"),
    ("put", '"abc"'),
    ("range", '{"key": "YQ==", "sort_order": "FOO"}'),
    ("range", '{"key": "YQ==", "sort_order": {}}'),
    ("range", '{"key": "YQ==", "sort_order": 1.5}'),
    ("range", '{"key": "YQ==", "revision": 100}'),
    ("txn", '{"success": [{}]}'),
    ("txn", '{"success": [{"request_put": null}]}'),
    ("txn", '{"success": [{"request_put": {}}]}'),
    ("txn", '{"success": [{"request_range": {}}]}'),
    ("txn", '{"compare": [{}]}'),
    ("txn", '{"compare": {}}'),
    ("txn", '{"success": [{"request_range": {"key": "YQ==", "revision": 1000}}]}'),
    ("txn", '{"success": [{"request_put": {"key": "YQ=="}}, {"request_put": {"key": "YQ=="}}]}'),
    ("compaction", '{"revision": 200}'),
    ("deleterange", "{}"),
]
SAME_CODE = [
    ("put", "{"),
    ("put", "garbage"),
    ("put", '{"key": "YQ==",}'),
    ("put", '{"key" "YQ=="}'),
    ("put", '{"key": "YQ=='),
    ("put", '{"key": "YQ==", "lease": "abc"}'),
    ("put", '{"key": NaN}'),
]


async def ask(session: ClientSession, name: str, body: str) -> tuple[int, dict[str, object]]:
    async with session.post(f"/v3/kv/{name}", data=body.encode()) as answer:
        found = answer_of(name, answer.status, await answer.text())
    return found.status, found.body


async def test_refusals_have_equal_status_code_and_words(theirs: ClientSession, ours: ClientSession) -> None:
    for name, body in SAME_WORDS:
        expected = await ask(theirs, name, body)
        assert expected[0] >= 400, (name, body)
        assert await ask(ours, name, body) == expected, (name, body)


async def test_syntax_errors_have_equal_status_and_code(theirs: ClientSession, ours: ClientSession) -> None:
    for name, body in SAME_CODE:
        status, expected = await ask(theirs, name, body)
        found_status, found = await ask(ours, name, body)
        assert (found_status, found["code"]) == (status, expected["code"]), (name, body)


async def test_spellings_that_etcd_accepts_are_accepted(theirs: ClientSession, ours: ClientSession) -> None:
    for name, body in (
        ("put", '{"key": "YQ==", "value": "Yg==", "prevKv": true}'),
        ("put", '{"key": "YQ=\\n=", "value": null}'),
        ("range", '{"key": "YR=="}'),
        ("range", '{"key": "YQ==", "rangeEnd": "eg==", "countOnly": true}'),
        ("range", '{"key": "YQ==", "limit": "3", "sort_order": 1, "sort_target": "MOD"}'),
        ("range", '{"key": "YQ==", "limit": -1, "revision": -1}'),
        ("txn", '{"success": [{"requestPut": {"key": "YQ=="}}, {"requestTxn": {"compare": [{"key": "YQ=="}]}}]}'),
        ("txn", '{"compare": [{"key": "YQ==", "target": "MOD", "value": "YQ=="}, {"key": "eg==", "target": "VALUE"}]}'),
        ("txn", "{}"),
        ("deleterange", '{"key": "AA==", "range_end": "AA=="}'),
    ):
        expected = await ask(theirs, name, body)
        assert expected[0] == 200, (name, body)
        assert await ask(ours, name, body) == expected, (name, body)


async def test_alarm_is_absent_while_there_is_room(theirs: ClientSession, ours: ClientSession) -> None:
    for body in (
        "",
        "{}",
        '{"action": "GET", "memberID": "0", "alarm": "NOSPACE"}',
        '{"alarm": "CORRUPT"}',
        '{"action": "DEACTIVATE", "memberID": 5, "alarm": "NOSPACE"}',
        '{"action": "FOO"}',
        '{"alarm": "FOO"}',
        '{"action": 0.5}',
    ):
        async with (
            theirs.post("/v3/maintenance/alarm", data=body.encode()) as expected,
            ours.post("/v3/maintenance/alarm", data=body.encode()) as found,
        ):
            assert (found.status, await found.json()) == (expected.status, await expected.json()), body


@pytest.mark.parametrize("path", ["/v3/kv/put", "/v3/watch", "/v3/lease/grant"])
async def test_a_get_is_not_allowed(theirs: ClientSession, ours: ClientSession, path: str) -> None:
    async with theirs.get(path) as expected, ours.get(path) as found:
        assert (expected.status, found.status) == (405, 405)
