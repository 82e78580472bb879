"""TLS between members, both sides with certificates. Those in `tls/` are for these tests only, good until 2126."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from palisade.base.frames import encode
from tests.support.loopback import IGNORE_POLICY_WARNING, KIND, Start, connect, greeting_of, introduce, stranger_at

pytestmark = IGNORE_POLICY_WARNING

FILES = Path(__file__).parent / "tls"


def contexts(whose: str) -> dict[str, Any]:
    """Both contexts of a member whose certificate is of one authority, and which trusts only that one."""
    made = {}
    for name, purpose in (("server_tls", ssl.Purpose.CLIENT_AUTH), ("client_tls", ssl.Purpose.SERVER_AUTH)):
        context = ssl.create_default_context(purpose, cafile=str(FILES / f"{whose}-ca.pem"))
        context.load_cert_chain(FILES / f"{whose}-member.pem", FILES / f"{whose}-member.key")
        context.verify_mode = ssl.CERT_REQUIRED
        made[name] = context
    return made


async def test_members_connect_over_tls(start: Start) -> None:
    one, two = await start("n1", **contexts("ours")), await start("n2", **contexts("ours"))
    await connect(one, two)
    data = b"x" * 3_000_000
    assert one.peers.send("n2", KIND, data)
    assert one.peers.send("n2", KIND, "after it")
    await two.recorder.until(lambda: len(two.recorder.messages) == 2)
    assert two.recorder.messages == [("n1", KIND, data), ("n1", KIND, "after it")]
    await two.peers.close()
    await one.recorder.until(lambda: one.recorder.disconnected == ["n2"])


async def test_certificate_of_another_authority_is_refused(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    one, two = await start("n1", **contexts("ours")), await start("n2", **contexts("theirs"))
    introduce(one, two)
    await one.recorder.until(lambda: "certificate verify failed" in caplog.text)
    assert one.recorder.greetings == two.recorder.greetings == []
    assert one.peers.connected() == two.peers.connected() == frozenset()
    assert all(record.exc_info is None for record in caplog.records)


async def test_connection_without_tls_is_refused(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    one, plain = await start("n1", **contexts("ours")), await start("n2")
    async with stranger_at(one) as stranger:
        stranger.writer.write(greeting_of("n2") + encode(KIND, "in clear"))
        await stranger.end()
    plain.peers.set_members({"n1": one.peers.address})
    await plain.recorder.until(lambda: "no connection to n1" in caplog.text)
    assert one.recorder.greetings == []
    assert one.recorder.messages == []
    assert all(record.exc_info is None for record in caplog.records)
