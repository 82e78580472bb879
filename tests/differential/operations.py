"""Random requests of etcd's JSON paths, from a seed: (path, body). Few keys, so that they meet."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from random import Random
from typing import Any

Request = tuple[str, dict[str, Any]]

KEYS = [*"abcdefgh", "a/1", "a/2", "b/1", "z"]
ENDS = [*KEYS, "\0", "a0", "c", "i", "zz"]
BOUNDED_ENDS = [end for end in ENDS if end != "\0"]
"""In transactions: etcd overlooks that a delete of every key from one on overlaps a put (etcd-compatibility.md)."""
LOW_KEYS, HIGH_KEYS = KEYS[:4], KEYS[4:8]
"""Deleted and put by nested transactions: etcd overlooks that a later one deletes what an earlier one puts."""
LEASES = (101, 102, 103, 104)


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


class Operations:
    """`revision` is the latest one that was seen: it makes revisions that exist, are compacted, or lie ahead."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.revision = 1

    def next(self) -> Request:
        random = self._random
        kinds = [self._put] * 30 + [self._range] * 30 + [self._delete] * 10 + [self._txn] * 20 + [self._lease] * 8
        kinds += [self._compaction] * 2
        return random.choice(kinds)()

    # Single operations.

    def _put(self) -> Request:
        return "/v3/kv/put", self.put()

    def _range(self) -> Request:
        return "/v3/kv/range", self.range()

    def _delete(self) -> Request:
        return "/v3/kv/deleterange", self.delete()

    def put(self) -> dict[str, Any]:
        random = self._random
        body: dict[str, Any] = {"key": self._key()}
        if random.random() < 0.9:
            body["value"] = encoded(random.choice("uvwxyz") * random.randrange(4))
        if random.random() < 0.15:
            body["lease"] = self._lease_id()
        self._sometimes(body, "prev_kv", 0.3)
        self._sometimes(body, "ignore_value", 0.06)
        self._sometimes(body, "ignore_lease", 0.06)
        return body

    def delete(self, ends: Sequence[str] = ENDS) -> dict[str, Any]:
        body: dict[str, Any] = {"key": self._key()}
        if self._random.random() < 0.4:
            body["range_end"] = encoded(self._random.choice(ends))
        self._sometimes(body, "prev_kv", 0.5)
        return body

    def range(self, *, inside: bool = False) -> dict[str, Any]:
        """`inside` of a transaction, where etcd takes a negative revision for a compacted one."""
        random = self._random
        body: dict[str, Any] = {"key": self._key()}
        if random.random() < 0.7:
            body["range_end"] = self._end()
        if random.random() < 0.3:
            body["limit"] = random.choice([0, 1, 2, 3, "5", -1])
        if random.random() < 0.3:
            body["revision"] = max(0, self._revision()) if inside else self._revision()
        if random.random() < 0.4:
            body["sort_order"] = random.choice(["NONE", "ASCEND", "DESCEND", 0, 1, 2])
        if random.random() < 0.4:
            body["sort_target"] = random.choice(["KEY", "VERSION", "CREATE", "MOD", "VALUE", 3])
        for name in ("serializable", "keys_only", "count_only"):
            self._sometimes(body, name, 0.12)
        for name in ("min_mod_revision", "max_mod_revision", "min_create_revision", "max_create_revision"):
            if random.random() < 0.1:
                body[name] = self._revision()
        return body

    # Transactions.

    def _txn(self) -> Request:
        nested = self._random.random() < 0.5
        return "/v3/kv/txn", self.txn(0 if nested else None)

    def txn(self, depth: int | None) -> dict[str, Any]:
        """`depth` None: nothing is nested in it."""
        random = self._random
        body: dict[str, Any] = {}
        if random.random() < 0.7:
            body["compare"] = [self.compare() for _ in range(random.choice([1, 1, 1, 2, 3]))]
        for branch in ("success", "failure"):
            if random.random() < 0.8:
                body[branch] = [self._operation(depth) for _ in range(random.choice([0, 1, 1, 2, 3, 4]))]
        return body

    def _operation(self, depth: int | None) -> dict[str, Any]:
        random = self._random
        chance = random.random()
        if chance < 0.25:
            return {"request_range": self.range(inside=True)}
        if chance < 0.45 and depth is not None and depth < 3:
            return {"request_txn": self.txn(depth + 1)}
        if chance < 0.75:
            put = self.put()
            return {"request_put": put if depth is None else put | {"key": encoded(random.choice(HIGH_KEYS))}}
        if depth is None:
            return {"request_delete_range": self.delete(BOUNDED_ENDS)}
        return {"request_delete_range": self.delete(LOW_KEYS) | {"key": encoded(random.choice(LOW_KEYS))}}

    def compare(self) -> dict[str, Any]:
        random = self._random
        target, name = random.choice(
            [
                ("VERSION", "version"),
                ("CREATE", "create_revision"),
                ("MOD", "mod_revision"),
                ("VALUE", "value"),
                ("LEASE", "lease"),
            ]
        )
        body: dict[str, Any] = {"key": self._key(), "target": target}
        if random.random() < 0.9:
            body["result"] = random.choice(["EQUAL", "GREATER", "LESS", "NOT_EQUAL"])
        if random.random() < 0.9:
            body[name] = self._operand(name)
        if random.random() < 0.2:
            body["range_end"] = self._end()
        return body

    def _operand(self, name: str) -> Any:
        if name == "value":
            return encoded(self._random.choice("uvwxyz") * self._random.randrange(4))
        if name == "lease":
            return self._random.choice([0, *LEASES])
        if name == "version":
            return self._random.randrange(4)
        return self._random.choice([0, max(0, self.revision - self._random.randrange(30))])

    # The rest.

    def _lease(self) -> Request:
        lease = self._lease_id()
        path = self._random.choice(["grant", "grant", "revoke", "timetolive", "leases", "keepalive"])
        bodies: dict[str, dict[str, Any]] = {
            "grant": {"ID": lease, "TTL": self._random.choice([1000, 5000, 9_000_000_001])},
            "revoke": {"ID": lease},
            "timetolive": {"ID": lease, "keys": self._random.random() < 0.7},
            "leases": {},
            "keepalive": {"ID": lease},
        }
        return f"/v3/lease/{path}", bodies[path]

    def _compaction(self) -> Request:
        body: dict[str, Any] = {"revision": self.revision - self._random.choice([-5, 0, 1, 10, 30, 60, 200])}
        self._sometimes(body, "physical", 0.5)
        return "/v3/kv/compaction", body

    def _key(self) -> str:
        return encoded(self._random.choice(KEYS))

    def _end(self) -> str:
        return encoded(self._random.choice(ENDS))

    def _lease_id(self) -> int:
        return self._random.choice(LEASES)

    def _revision(self) -> int:
        return max(-1, self.revision + self._random.choice([-100, -50, -20, -10, -5, -2, -1, 0, 1, 50]))

    def _sometimes(self, body: dict[str, Any], name: str, chance: float) -> None:
        if self._random.random() < chance:
            body[name] = True
