"""PySyncObj 0.3.17: the parts that `library.py` relies on; read them again before an upgrade.

The digests are of the source of each method, without comments and blanks. If one differs, read the change, verify the
statement beside the digest, and only then update the digest.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import io
import re
import tokenize
from pathlib import Path

import pysyncobj
import pysyncobj.syncobj as library
import pytest
from pysyncobj.journal import Journal
from pysyncobj.transport import Transport

from palisade import raftgroup
from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.library import Engine
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import BATCH, MEMBERSHIP, NO_OP
from tests.support.lone_replica import LoneReplica

RELIED_UPON = {
    "__init__": "createJournal once; a first entry only into an empty journal; term from the journal or its last entry",
    "_onTick": "campaigns after connectedToAnyone; commits by majority in its own term; falls back; applies; sends",
    "_SyncObj__onMessageReceived": "the handlers in front of which guard.py and replica.py stand",
    "_SyncObj__sendNextNodeIdx": "answers an append through the transport, at once",
    "_SyncObj__generateRaftTimeout": "between raftMinTimeout and raftMaxTimeout, by the module's random",
    "_SyncObj__getCurrentLogIndex": "the journal's last entry",
    "_SyncObj__getCurrentLogTerm": "the journal's last entry",
    "_SyncObj__getPrevLogIndexTerm": "is not reached, since the appends are sent elsewhere",
    "_SyncObj__deleteEntriesFrom": "an offset from the first entry; nothing where it is negative",
    "_SyncObj__onBecomeLeader": "resets nextIndex and matchIndex; a no-op, whose index is kept; sends appends",
    "_SyncObj__setCurrentTerm": "memory first, then the journal, which notifies the replica",
    "_SyncObj__setState": "the state alone",
    "_SyncObj__onLeaderChanged": "ends forwarded commands, of which there are none here",
}

DIGESTS = {
    "__init__": "e7a7598668339808",
    "_onTick": "571248f5c74c9812",
    "_SyncObj__onMessageReceived": "177e84965ad1d313",
    "_SyncObj__sendNextNodeIdx": "5c5c92255d1a526b",
    "_SyncObj__generateRaftTimeout": "50629cab471f81a5",
    "_SyncObj__getCurrentLogIndex": "f46bf46940587db2",
    "_SyncObj__getCurrentLogTerm": "991484bbe95e6f05",
    "_SyncObj__getPrevLogIndexTerm": "0bdfeacf1a2608bb",
    "_SyncObj__deleteEntriesFrom": "0eef98bed18ab717",
    "_SyncObj__onBecomeLeader": "bf61bd2b63de8231",
    "_SyncObj__setCurrentTerm": "90df3f713a2db1df",
    "_SyncObj__setState": "9fb848efa6ef225a",
    "_SyncObj__onLeaderChanged": "f04b157ba8cb65e8",
}


def digest(method: str) -> str:
    source = inspect.getsource(getattr(library.SyncObj, method))
    passed_over = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    words = [token.string for token in tokens if token.type not in passed_over]
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:16]


def test_library_version_is_the_pinned_one() -> None:
    assert pysyncobj.syncobj.VERSION == "0.3.17"


@pytest.mark.parametrize("method", sorted(RELIED_UPON))
def test_used_library_method_is_unchanged(method: str) -> None:
    assert digest(method) == DIGESTS[method], f"{method} has changed; relied upon: {RELIED_UPON[method]}"


def test_every_used_private_name_exists() -> None:
    replica = LoneReplica()
    source = inspect.getsource(inspect.getmodule(Engine))  # type: ignore[arg-type]
    names = set(re.findall(r"_SyncObj__\w+", source))
    assert len(names) > 15
    for name in names:
        assert hasattr(replica.replica.engine, name), name


def test_overridden_names_exist_in_the_library() -> None:
    """An override of a removed name would have no effect, and its replacement would run."""
    overridden = [name for name in vars(Engine) if name.startswith("_SyncObj__") or name == "_checkCommandsToApply"]
    assert len(overridden) == 6
    for name in overridden:
        assert callable(getattr(library.SyncObj, name)), name


def test_private_names_of_the_library_are_used_in_one_file() -> None:
    for path in Path(raftgroup.__file__).parent.rglob("*.py"):
        if path.name != "library.py":
            assert "_SyncObj__" not in path.read_text(), path
            assert "pysyncobj" not in re.findall(r"^(?:import|from) (\w+)", path.read_text(), re.MULTILINE), path


def library_tree() -> ast.ClassDef:
    return next(
        node
        for node in ast.parse(inspect.getsource(library)).body
        if isinstance(node, ast.ClassDef) and node.name == "SyncObj"
    )


def callers(name: str) -> dict[str, int]:
    """Methods of the library that use `self.<name>`, and how often."""
    found: dict[str, int] = {}
    for method in library_tree().body:
        if isinstance(method, ast.FunctionDef):
            uses = [node for node in ast.walk(method) if isinstance(node, ast.Attribute) and node.attr == name]
            if uses:
                found[method.name] = len(uses)
    return found


def test_single_entry_is_requested_only_by_the_commit_rule_and_appends() -> None:
    """`_SyncObj__getEntries` hides unsynced entries from the commit rule; no other caller may be affected."""
    singles = {
        method.name
        for method in library_tree().body
        if isinstance(method, ast.FunctionDef)
        for node in ast.walk(method)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "__getEntries"
        and len(node.args) >= 2
        and isinstance(node.args[1], ast.Constant)
        and node.args[1].value == 1
    }
    assert singles == {"_onTick", "__getPrevLogIndexTerm"}
    assert callers("__getPrevLogIndexTerm") == {"__sendAppendEntries": 1}


def test_library_creates_its_journal_once() -> None:
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(library))) if isinstance(node, ast.Call)]
    made = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "createJournal"]
    assert len(made) == 1


def test_library_uses_pickle_only_to_dump_and_load() -> None:
    uses = set(re.findall(r"pickle\.(\w+)\(", inspect.getsource(library)))
    assert uses == {"dumps", "loads"}


def test_library_time_and_random_are_module_globals() -> None:
    source = inspect.getsource(library)
    assert "monotonic as monotonicTime" in source
    assert set(re.findall(r"\brandom\.(\w+)\(", source)) == {"random"}
    assert set(re.findall(r"\btime\.(\w+)\(", source)) == {"sleep"}, "in threads and for transports that are not ready"


def test_library_journal_has_the_methods_of_the_view() -> None:
    methods = {name for name, value in vars(Journal).items() if inspect.isfunction(value)}
    assert methods == {
        "add",
        "clear",
        "deleteEntriesFrom",
        "deleteEntriesTo",
        "__getitem__",
        "__len__",
        "_destroy",
        "setRaftCommitIndex",
        "getRaftCommitIndex",
        "setCurrentTerm",
        "getCurrentTerm",
        "getVotedForNodeId",
        "onOneSecondTimer",
    }


def test_library_transport_is_ready_and_delivers_by_callback() -> None:
    transport = Transport(None, None, [])
    assert transport.ready
    seen: list[object] = []
    transport.setOnMessageReceivedCallback(lambda node, message: seen.append((node, message)))
    transport._onMessageReceived("node", {"type": "x"})
    assert seen == [("node", {"type": "x"})]


def test_entry_kinds_are_the_librarys() -> None:
    kinds = library._COMMAND_TYPE
    assert (BATCH[0], NO_OP[0], MEMBERSHIP[0]) == (kinds.REGULAR, kinds.NO_OP, kinds.MEMBERSHIP)


def test_library_applies_and_appends_only_in_overridden_methods() -> None:
    """`Engine.append` and `Engine.__applyLogEntries` replace these; nothing else in a tick may call them."""
    assert callers("__applyLogEntries") == {"_onTick": 2}
    assert callers("_checkCommandsToApply") == {"_onTick": 1}
    assert callers("__commandsQueue") == {"__init__": 1, "_applyCommand": 2, "_checkCommandsToApply": 1}


def test_proposed_entry_is_in_the_log_at_once() -> None:
    leader = LoneReplica()
    leader.leads()
    before = leader.journal.last.index
    leader.replica.propose([])
    assert leader.journal.last.index == before + 1
    assert leader.said(MessageKind.APPEND, to="n2")


def test_follower_cannot_append() -> None:
    with pytest.raises(NodeFailed, match="does not lead"):
        LoneReplica().replica.engine.append(BATCH)


def test_two_engines_in_one_process_have_separate_clocks() -> None:
    one, other = LoneReplica(), LoneReplica()
    other.clock.time += 1000.0
    one.waits(0.5)
    one.tick()
    other.tick()
    one.tick()
    assert one.replica.engine.term == 0
    assert one.sent == [], "half a second has passed for it, and no election timeout"
    assert other.sent
