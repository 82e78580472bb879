"""Members in etcd's JSON, and requests without content (`etcd_keys.py`)."""

from __future__ import annotations

import json
from typing import Any

from palisade.api.http.protobuf_json import (
    JsonMessage,
    as_bool,
)
from palisade.raftgroup.membership import Member, MemberRole

_EMPTY = JsonMessage("etcdserverpb.EmptyRequest", {"linearizable": as_bool})


def decode_empty(value: Any) -> None:
    _EMPTY.read(value)


def member(number: int, each: Member) -> str:
    """An entry of the member list."""
    peer, http = each.addresses.get("peer"), each.addresses.get("http")
    text = f'{{"ID":"{number}","name":{json.dumps(each.id)}'
    if peer:
        text += f',"peerURLs":[{json.dumps("http://" + peer)}]'
    if http:
        text += f',"clientURLs":[{json.dumps("http://" + http)}]'
    return text + (',"isLearner":true}' if each.role is MemberRole.LEARNER else "}")
