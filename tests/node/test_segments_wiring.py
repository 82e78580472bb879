"""A member writes its announcements through its own stream; a follower through those of the members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palisade.base.address import Address
from palisade.node import segments_wiring
from palisade.node.config import InitialMember, NodeConfig
from palisade.node.host import Host
from palisade.recovery.vault_component import OnVault
from palisade.segments.announcement_client import AnnouncementClient
from palisade.topology.swim.record import Record

OTHER = Record("n2", "10.0.0.2:7301", "1", tags=(("stream", "10.0.0.2:7201"),))


@pytest.mark.parametrize(
    ("host", "follow", "addresses"),
    [
        ("10.0.0.1", False, ["10.0.0.1:7201"]),
        ("0.0.0.0", False, ["127.0.0.1:7201"]),
        ("::", False, ["[::1]:7201"]),
        ("10.0.0.1", True, ["10.0.0.2:7201"]),
    ],
)
def test_member_announces_through_its_own_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, *, follow: bool, addresses: list[str]
) -> None:
    """A client at the leader leaves it only after 5 s of silence once it is frozen, so `realtime append` at a healthy
    node failed. The Raft group of a member has another leader after a second."""
    made = list[Any]()

    def noted(*given: Any, follow_leader: bool) -> AnnouncementClient:
        made.extend((given[0], follow_leader))
        return AnnouncementClient(*given, follow_leader=follow_leader)

    monkeypatch.setattr(segments_wiring, "AnnouncementClient", noted)
    ports = {"http": 7401, "peer": 7101, "stream": 7201}
    known = {name: Address(host, port) for name, port in ports.items()}
    founders = () if follow else (InitialMember("n1", Address("10.0.0.1", 7101)),)
    config = NodeConfig(
        "n1",
        tmp_path,
        "c",
        **known,
        initial_cluster=founders,
        seeds=(Address("10.0.0.2", 7301),),
        follow=follow,
        segments=True,
        join_token="t" * 32,
        advertise_host="10.0.0.1",
        insecure_listen=True,
    )
    segments_wiring.with_segments(Host(config), lambda: [OTHER], OnVault())
    assert made[0]() == addresses
    assert made[1] is follow
