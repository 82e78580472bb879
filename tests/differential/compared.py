"""Answers of the two, made comparable: what is theirs alone is taken out, everything else has to be equal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

OWN_NUMBERS = ("cluster_id", "member_id", "raft_term")


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` without what differs between any two clusters."""

    status: int
    body: Any

    @property
    def revision(self) -> int:
        """Of the header; 0 where there is none."""
        header = self.body.get("header", {}) if isinstance(self.body, dict) else {}
        return int(header.get("revision", 0))


def answer_of(path: str, status: int, text: str) -> Answer:
    if path == "/v3/lease/keepalive":
        return Answer(status, [without_own(json.loads(line)) for line in text.splitlines()])
    text = text.removesuffix("Grpc-Trailer-Content-Type: application/grpc")
    body = without_own(json.loads(text))
    if path == "/v3/lease/timetolive" and body.get("TTL", "-1") != "-1":
        body["TTL"] = "what is left"
    if "keys" in body:
        body["keys"].sort()
    if "leases" in body:
        body["leases"].sort(key=lambda lease: int(lease["ID"]))
    return Answer(status, body)


def without_own(body: Any) -> Any:
    """In every header, however deep, the numbers of the cluster itself."""
    if isinstance(body, list):
        return [without_own(each) for each in body]
    if not isinstance(body, dict):
        return body
    return {
        name: {key: value for key, value in inner.items() if key not in OWN_NUMBERS}
        if name == "header"
        else without_own(inner)
        for name, inner in body.items()
    }
