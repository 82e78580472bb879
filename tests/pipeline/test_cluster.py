"""What a job knows of the cluster: the newest released revision, renewed pins, credentials of files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palisade.metastore.errors import InvalidRequest
from palisade.metastore.lineage import Lineage
from palisade.pipeline.cluster import PENDING_TRIES, Pinned, PinRenewal, credentials_of, current
from palisade.pipeline.errors import BadOption
from palisade.pipeline.options import read_options
from palisade.wire.batch_records import Window
from palisade.wire.credentials import Password, StoredToken
from palisade.wire.fencing_errors import ReadPending
from palisade.wire.scan_pages import KeyCounts

NODE = {"endpoints": "127.0.0.1:7601"}
OURS = Lineage("c1", 1)


class FakeClient:
    """`pending`: so many counts end as ReadPending. `old`: a pin that cannot be renewed."""

    def __init__(self, pending: int = 0, old: bool = False) -> None:
        self.pending, self.old = pending, old
        self.pins = 0

    def scan_counts(self, *_: Any) -> KeyCounts:
        if self.pending:
            self.pending -= 1
            raise ReadPending("not released yet")
        return KeyCounts(9, OURS, 64, [], 0, None)

    def scan_windows(self, *_: Any) -> list[Window]:
        return []

    def status(self) -> dict[str, int]:
        return {"minimal_revision": 3}

    def pin(self, *_: Any) -> int:
        self.pins += 1
        if self.old:
            raise InvalidRequest("the pin has lived the longest that one may")
        return 1


def test_release_that_takes_several_requests_does_not_end_a_job() -> None:
    here = current(FakeClient(pending=PENDING_TRIES - 1), read_options(NODE))  # type: ignore[arg-type]
    assert (here.revision, here.minimal_revision, here.lineage) == (9, 3, OURS)
    with pytest.raises(ReadPending):
        current(FakeClient(pending=PENDING_TRIES), read_options(NODE))  # type: ignore[arg-type]


@pytest.mark.parametrize(("old", "pins"), [(False, 4), (True, 1)])
def test_pin_is_renewed_three_times_per_life_until_it_is_too_old(old: bool, pins: int) -> None:
    """A pin at the end of its longest life is not renewed: the job continues as long as it can."""
    client, now = FakeClient(old=old), [100.0]
    options = read_options(NODE | {"pinMs": "60000"})
    renew = PinRenewal(client, options, Pinned("p", 9, 9, OURS), lambda: now[0])  # type: ignore[arg-type]
    for _ in range(61):
        renew()
        now[0] += 1
    assert client.pins == pins


def test_credentials_come_from_files(tmp_path: Path) -> None:
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_text("pt1.x.y\ncluster-id: c1\n")
    password.write_text("secret\n")
    access = read_options(NODE | {"tokenFile": str(token)}).access
    assert credentials_of(access) == StoredToken("pt1.x.y", "c1", str(token))
    access = read_options(NODE | {"user": "alice", "passwordFile": str(password)}).access
    assert credentials_of(access) == Password("alice", "secret")
    assert credentials_of(read_options(NODE).access) is None
    with pytest.raises(BadOption, match="option tokenFile: cannot read"):
        credentials_of(read_options(NODE | {"tokenFile": str(tmp_path / "none")}).access)
