"""The options of a read or write: parsed once, refused with what to do."""

from __future__ import annotations

import pytest

from palisade.pipeline.errors import BadOption
from palisade.pipeline.offsets import Since
from palisade.pipeline.option_names import KNOWN, OPTIONS, OptionUse
from palisade.pipeline.options import StreamOptions, read_options, stream_options, target_of

NODE = {"endpoints": "127.0.0.1:7601"}


@pytest.mark.parametrize(
    ("options", "bounds"),
    [
        ({}, (b"\0", b"\0")),
        ({"prefix": ""}, (b"\0", b"\0")),
        ({"prefix": "a/"}, (b"a/", b"a0")),
        ({"keyFrom": "a"}, (b"a", b"\0")),
        ({"keyTo": "b"}, (b"\0", b"b")),
        ({"KEYFROM": "a", "keyto": "b"}, (b"a", b"b")),
    ],
)
def test_options_give_the_range_of_keys(options: dict[str, str], bounds: tuple[bytes, bytes]) -> None:
    found = read_options(NODE | options)
    assert (found.key, found.range_end) == bounds


def test_to_revision_is_the_revision_of_a_history() -> None:
    found = read_options(NODE | {"history": "TRUE", "fromRevision": "3", "toRevision": "9"})
    assert (found.history, found.first, found.revision) == (True, 3, 9)


def test_vaults_are_folders_separated_by_commas() -> None:
    found = read_options(NODE | {"vaults": "/n1/vault, /n2/vault,"})
    assert (found.vaults, found.vault_only) == (("/n1/vault", "/n2/vault"), False)
    assert read_options(NODE).vaults == ()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"endpoints": ""}, "endpoints is missing"),
        ({"endpoints": "nowhere"}, "option endpoints"),
        ({"password": "secret"}, "visible in logs"),
        ({"token": "secret"}, "visible in logs"),
        ({"prefx": "a"}, "option prefx is unknown"),
        ({"path": "a/"}, "path, .* has no meaning here: give keys by option prefix"),
        ({"owner": "root", "Provider": "palisade", "path": "a"}, "CREATE TABLE .* not possible.*TEMPORARY VIEW"),
        ({"prefix": "a", "keyTo": "b"}, "give prefix, or"),
        ({"keyFrom": "b", "keyTo": "b"}, "is not after"),
        ({"revision": "-1"}, "is not a number from 0"),
        ({"revision": "9" * 30}, "is not a number from 0"),
        ({"revision": "5", "history": "true"}, "give fromRevision and toRevision"),
        ({"toRevision": "5"}, "add option history=true"),
        ({"history": "true", "fromRevision": "9", "toRevision": "3"}, "is after"),
        ({"valueType": "json"}, "give valueSchema"),
        ({"valueType": "string", "valueSchema": "a INT"}, "give valueSchema"),
        ({"mode": "lenient"}, "is not one of permissive, failfast"),
        ({"user": "alice"}, "user and passwordFile"),
        ({"tokenFile": "t", "user": "alice", "passwordFile": "p"}, "give tokenFile, or"),
        ({"vaultOnly": "true"}, "needs option vaults"),
        ({"vaults": "/n1/vault", "history": "true"}, "vaults has no effect on reads of the history"),
        ({"partitionRows": "0"}, "is not a number from 1"),
        ({"stageMs": "5000"}, "stageMs has no effect on reads of a state: omit it. It is for writes"),
        ({"rejectsPrefix": "bad/"}, "rejectsPrefix has no effect on reads of a state"),
        ({"history": "true", "recordPrefix": "q/"}, "recordPrefix has no effect on reads of the history"),
        ({"maxRowsPerBatch": "9"}, "It is for streaming reads, which have startingRevision"),
        ({"startingRevision": "latest", "history": "true"}, "history has no effect on streaming reads"),
        ({"startingRevision": "latest", "revision": "4"}, "revision has no effect on streaming reads"),
    ],
)
def test_bad_options_are_refused_with_the_reason(options: dict[str, str], reason: str) -> None:
    with pytest.raises(BadOption, match=reason):
        read_options(NODE | options)


def test_error_without_any_option_explains_tables_of_the_catalog_of_spark() -> None:
    """Spark 4.3 passes no options to INSERT INTO and SELECT of such a table."""
    with pytest.raises(BadOption, match=r"endpoints is missing.*CREATE TEMPORARY VIEW"):
        read_options({})
    with pytest.raises(BadOption, match=r"endpoints is missing: give host:port of the stream of one or more nodes$"):
        read_options({"prefix": "a/"})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", sorted(set(KNOWN) - set(OPTIONS[OptionUse.STREAM_WRITE])))
def test_option_of_reads_is_refused_by_writes(name: str, stream: bool) -> None:
    """Issue 18: each was accepted, and had no effect."""
    with pytest.raises(BadOption, match=f"option {name} has no effect on (streaming )?writes: omit it"):
        target_of(NODE | {name: "1"}, False, stream=stream)


def test_write_accepts_its_own_options_and_those_of_spark() -> None:
    own = {"prefix": "p/", "rejectsPrefix": "bad/", "stageMs": "5000"}
    of_spark = {"checkpointLocation": "/c", "queryName": "q"}
    found = target_of(NODE | own | of_spark, False)
    assert (found.prefix, found.rejects, found.stage_ms) == (b"p/", "bad/", 5_000)
    assert target_of(NODE | {"recordPrefix": "q/"}, False, stream=True).records == "q/"
    with pytest.raises(BadOption, match=r"recordPrefix has no effect on writes: omit it\. It is for streaming writes"):
        target_of(NODE | {"recordPrefix": "q/"}, False)
    with pytest.raises(BadOption, match="option prefx is unknown"):
        target_of(NODE | {"prefx": "p/"}, False)


def test_error_of_a_credential_option_does_not_repeat_it() -> None:
    with pytest.raises(BadOption) as failed:
        read_options(NODE | {"password": "hunter2"})
    assert "hunter2" not in str(failed.value)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("latest", "latest"),
        ("earliest", "earliest"),
        ("7", 7),
        ("2026-03-01T06:00Z", Since(1_772_344_800_000)),
        ("2026-03-01", Since(1_772_323_200_000)),
        ("1960-01-01", Since(0)),
    ],
)
def test_starting_revision_of_a_stream(text: str, start: object) -> None:
    assert stream_options(NODE | {"startingRevision": text}).start == start
    with pytest.raises(BadOption, match="startingRevision"):
        stream_options(NODE | {"startingRevision": f"{text}!"})


def test_limits_of_a_micro_batch_and_what_follows_compaction() -> None:
    found = stream_options(NODE | {"maxBytesPerBatch": "1000", "onCompacted": "Snapshot"})
    assert (found.rows_max, found.bytes_max, found.snapshots) == (100_000, 1_000, True)
    assert stream_options(NODE) == StreamOptions("latest", 100_000, 0, False)
    for bad in ({"maxBytesPerBatch": "-1"}, {"onCompacted": "skip"}, {"startingRevision": "0"}):
        with pytest.raises(BadOption):
            stream_options(NODE | bad)
