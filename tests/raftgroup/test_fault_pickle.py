"""Fault 11 of pysyncobj.md: any peer of the library's port can execute code; here nothing is unpickled."""

from __future__ import annotations

import ast
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pysyncobj.pickle as pickle
import pysyncobj.syncobj as library
import pytest
from pysyncobj.poller import createPoller
from pysyncobj.tcp_connection import TcpConnection

from palisade import raftgroup
from palisade.base.frames import FrameError, FrameParser
from palisade.raftgroup.messages import MessageKind, is_well_formed
from tests.support.lone_replica import LoneReplica
from tests.support.raft_cluster import Cluster

TOUCHED: list[str] = []


def touch(what: str) -> str:
    TOUCHED.append(what)
    return what


class Malicious:
    def __reduce__(self) -> tuple[Callable[[str], str], tuple[str]]:
        return touch, ("owned",)


@pytest.fixture(autouse=True)
def _untouched() -> None:
    TOUCHED.clear()


def malicious_frame() -> bytes:
    packed = zlib.compress(pickle.dumps(Malicious()))
    return struct.pack("i", len(packed)) + packed


def test_fault_11_library_executes_input_of_any_connection() -> None:
    connection = TcpConnection(createPoller("auto"))
    connection._TcpConnection__readBuffer = malicious_frame()
    connection._TcpConnection__processParseMessage()
    assert TOUCHED == ["owned"]


def test_fault_11_pickle_on_the_wire_is_not_a_frame() -> None:
    with pytest.raises(FrameError):
        FrameParser().feed(malicious_frame() * 100)
    assert TOUCHED == []


@pytest.mark.parametrize("kind", list(MessageKind))
def test_fault_11_pickle_inside_a_message_is_not_unpickled(
    make_cluster: Callable[..., Cluster], kind: MessageKind
) -> None:
    cluster = make_cluster()
    leader = cluster.leader()
    for body in (pickle.dumps(Malicious()), [pickle.dumps(Malicious())] * 6, [[b"\x00" + pickle.dumps(Malicious())]]):
        leader.group.on_message("n2", int(kind), body)
    cluster.run_for(1.0)
    assert TOUCHED == []
    assert cluster.put(cluster.leader().id, "a", "still here")


def test_fault_11_library_cannot_use_pickle_here() -> None:
    LoneReplica()
    assert library.pickle.dumps([1, b"x"]) == b"\x92\x01\xc4\x01x"
    with pytest.raises(ValueError, match="unpack"):
        library.pickle.loads(pickle.dumps(Malicious()))
    assert TOUCHED == []


def test_fault_11_no_module_of_the_group_imports_pickle() -> None:
    for path in Path(raftgroup.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = getattr(node, "module", None)
            assert not {"pickle", "marshal", "shelve"} & {*names, module}, path


def test_fault_11_library_requests_to_add_remove_and_transfer_have_no_kind() -> None:
    """In the library they are text messages of any connection; here a member calls the leader by name, after its
    handshake.
    """
    replica = LoneReplica()
    replica.leads()
    before = replica.replica.membership
    for request in (["add", ["n9"]], ["remove", ["n2"]], ["transfer", ["n2"]], {"type": "apply_command"}):
        for kind in range(256):
            if is_well_formed(kind, request) and kind not in {int(each) for each in MessageKind}:
                replica.replica.receive("n2", kind, request)
    replica.settle()
    assert replica.replica.membership == before
    assert replica.replica.leads
