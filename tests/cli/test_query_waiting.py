"""palisade query says within 2 s which segments and which data nodes it waits for (issue 17)."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from click.testing import CliRunner

from palisade.base.http_request import Answer, NoAnswer
from palisade.cli import query
from palisade.cli import waiting as waiting_module
from palisade.cli.main import main
from palisade.cli.query import DataNodes
from palisade.cli.query_waiting import QueryWaiting, short, waits_for
from palisade.cli.session import CliSession
from palisade.cli.waiting import waiting
from palisade.client import segment_query
from palisade.client.segment_query import CountFailed, CountProgress, count_rows
from palisade.segments.assignment import last_assignment
from palisade.wire.segment_errors import SegmentsUnavailable
from tests.support.segment_names import name

PUBLISHED = {"segment": name(1), "digest": "rows-sha256:0", "replicas": 2}
GROWING = {"segment": name(2), "digest": "", "replicas": 1, "ingester": "n3"}
RECORDS = {each["segment"]: each for each in (PUBLISHED, GROWING)}
FIRST, SECOND, THIRD = (f"2013-01-0{day}/2013-01-0{day + 1}/1/0" for day in (1, 2, 3))
FROM, TO = name(1).split("/")[1:3]
ASSIGNED = {"nodes": ["n1", "n2"], "prefix": "", "replicas": None}


def test_missing_segments_are_named_with_their_nodes() -> None:
    progress = CountProgress(RECORDS, [name(1), name(2)])
    assert waits_for(progress, ASSIGNED) == (f"2 segments without a server: {FIRST} (assigned to n1, n2) and 1 more")
    progress = CountProgress(RECORDS, [name(2), name(1)])
    assert waits_for(progress, None) == f"2 segments without a server: {SECOND} (on n3) and 1 more"
    assert waits_for(progress, {**ASSIGNED, "prefix": "other/"}) == waits_for(progress, None)


def test_segment_that_its_ingester_has_published_and_no_assignment_covers_is_on_the_ingester() -> None:
    record = {**GROWING, "digest": "rows-sha256:0"}
    progress = CountProgress({name(2): record}, [name(2)])
    assert waits_for(progress, {**ASSIGNED, "prefix": "other/"}) == (f"1 segment without a server: {SECOND} (on n3)")
    assert "(assigned to n" in str(waits_for(progress, ASSIGNED))


def test_loading_failed_and_asked_segments_are_named() -> None:
    failed = {name(3): "n1: connection refused"}
    progress = CountProgress({}, [], [name(1)], {name(2): "n2"}, failed)
    assert waits_for(progress, None) == f"1 segment not loaded yet: {FIRST}; 1 not answered yet"
    progress = CountProgress({}, [], [], {name(2): "n2"}, failed)
    assert waits_for(progress, None) == f"no answer yet from n2 for {SECOND}"
    progress = CountProgress({}, [], [], {}, failed)
    assert waits_for(progress, None) == f"1 segment not counted: {THIRD} (n1: connection refused)"


def test_notice_of_many_segments_takes_two_rows_of_80_columns() -> None:
    """It took up to eight (issue 16)."""
    names = [name(day) for day in range(1, 29)]
    records = {each: {**GROWING, "segment": each} for each in names}
    progress = CountProgress(records, names[:9], names[9:18], dict.fromkeys(names[18:], "n2"), {names[0]: "n1: late"})
    text = f"palisade: waiting: {waits_for(progress, None)} (for 14 s)"
    assert len(text) <= 160
    assert "9 segments without a server: 2013-01-01/2013-01-02/1/0 (on n3) and 8 more; 9 not loaded yet; 10 not" in text


def test_short_name_of_a_segment_keeps_times_and_numbers() -> None:
    long = "clicks/2013-03-01T06:00:00.000Z/2013-03-01T07:30:00.500Z/0000000000000012/00010"
    assert short(long) == "2013-03-01T06:00:00/2013-03-01T07:30:00.500/12/10"


def test_long_lists_are_cut() -> None:
    text = waits_for(CountProgress({}, [name(day) for day in range(1, 10)]), None)
    assert text is not None
    assert text.startswith("9 segments without a server: ")
    assert text.endswith(f"{FIRST} and 8 more")


def test_count_that_waits_for_answers_only_has_no_reason_of_its_own() -> None:
    assert waits_for(CountProgress(), None) is None


class Cluster:
    """A broker, and the key with the last assignment."""

    def __init__(self, **found: Any) -> None:
        self.found = {"segments": [], "missing": [], "loading": [], "unserved": [], "rows": {}, "revision": 7, **found}

    async def lookup(self) -> Any:
        return {"records": RECORDS, **self.found}

    async def range(self, key: bytes) -> Any:
        assert key == last_assignment(["n1", "n2"], None, "")[0]
        value = last_assignment(["n1", "n2"], None, "")[1]
        return type("Found", (), {"kvs": [type("Row", (), {"value": value})]})


async def silent(node: str, segment: str) -> int:
    await asyncio.sleep(3)
    raise CountFailed(node, "no answer in time")


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({"missing": [name(1)]}, f"1 segment without a server: {FIRST} (assigned to n1, n2)"),
        ({"missing": [name(2)]}, f"1 segment without a server: {SECOND} (on n3)"),
        (
            {"segments": [{"segment": name(1), "from": FROM, "to": TO, "nodes": ["n1"]}]},
            f"no answer yet from n1 for {FIRST}",
        ),
    ],
    ids=["published", "growing", "node that does not answer"],
)
async def test_first_notice_of_a_count_names_what_it_waits_for(
    found: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first one is written a second after the start of the process, long before the count gives up."""
    monkeypatch.setattr(waiting_module, "NOTICE_S", 0.05)
    cluster, progress = Cluster(**found), CountProgress()
    reason = QueryWaiting(progress)

    async def pause(s: float) -> None:
        reason.look()
        await asyncio.sleep(s)

    async def count() -> None:
        async with waiting(lambda: reason.text() or "no answer yet from the nodes"), reason.reading(cluster):
            await count_rows(cluster.lookup, silent, attempts=2, rng=random.Random(1), pause=pause, progress=progress)

    try:
        async with asyncio.timeout(0.15):
            await count()
    except (TimeoutError, SegmentsUnavailable):
        pass
    assert capsys.readouterr().err == f"palisade: waiting: {text}\n"


@pytest.mark.parametrize("options", [("--json",), ()], ids=["json", "text"])
def test_count_that_ends_without_an_answer_names_the_node(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gave the number of segments only, and not the frozen node (issue 16)."""

    limits: list[float] = []

    async def lookup_all(*arguments: Any) -> dict[str, Any]:
        limits.append(arguments[-1]())
        segment = {"segment": name(1), "from": FROM, "to": TO, "nodes": ["n2"]}
        return {**(await Cluster(segments=[segment]).lookup()), "rows": {name(1): 5}}

    async def rows(self: DataNodes, node: str, segment: str) -> int:
        raise CountFailed(node, "no answer in time")

    def call(self: CliSession, action: Any, **_: Any) -> Any:
        return asyncio.run(action(None))

    monkeypatch.setattr(segment_query, "lookup_all", lookup_all)
    monkeypatch.setattr(DataNodes, "rows", rows)
    monkeypatch.setattr(CliSession, "call", call)
    times = (f"--from={FROM}", f"--to={TO}", "--timeout=0.1")
    done = CliRunner().invoke(main, ("query", "count", "flights", *times, *options))
    assert done.exit_code == 3
    assert f"1 segment not counted: {FIRST} (n2: no answer in time). Start the stopped nodes" in done.stderr
    assert name(1) in done.stderr
    assert set(limits) == {query.LEAST_S}, "a lookup has the rest of --timeout, but not less than this"


async def test_node_that_gave_no_answer_is_not_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count with the leader just frozen took 12 s: each of its segments waited 3 s for the same node (issue 16)."""
    asked, now_s = list[str](), 100.0

    class Requests:
        async def json(self, address: str, path: str, **_: Any) -> Any:
            nonlocal now_s
            asked.append(address)
            now_s += 0 if len(asked) < 2 else query.TIMEOUT_S
            raise NoAnswer("http://one", "connection refused" if len(asked) < 2 else "no answer in time")

    class Topology:
        async def topology(self) -> dict[str, Any]:
            return {}

    monkeypatch.setattr(query, "addresses_in", lambda _: {"n1": "one", "n2": "two"})
    nodes = DataNodes(Topology(), Requests(), lambda: now_s)  # type: ignore[arg-type]
    for node in ("n1", "n1", "n1", "n2"):
        with pytest.raises(CountFailed):
            await nodes.rows(node, name(1))
    assert asked == ["one", "one", "two"], "a node that refuses the connection is asked again at once"
    with pytest.raises(CountFailed, match="no answer in time"):
        await nodes.rows("n1", name(1))
    assert asked == ["one", "one", "two", "one"], "it is asked again after the time of a request"


async def test_reason_of_a_node_that_does_not_count_is_its_own_and_names_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node without --segments gave "n3: n3 answered with HTTP 404". A reason with the name as a word, such as that of
    node "the", was shown without the node."""
    answers = [Answer(404, {"detail": "this node stores no segments: it runs without --segments"}, {})]
    answers.append(Answer(503, {"detail": "the vault is fenced"}, {}))

    class Requests:
        async def json(self, *_: Any, **__: Any) -> Answer:
            return answers.pop(0)

    class Topology:
        async def topology(self) -> dict[str, Any]:
            return {}

    monkeypatch.setattr(query, "addresses_in", lambda _: {"n3": "three", "the": "four"})
    progress = CountProgress()
    ask = progress.asking(DataNodes(Topology(), Requests(), lambda: 0.0).rows)  # type: ignore[arg-type]
    for node, reason in (("n3", answers[0].detail), ("the", answers[1].detail)):
        with pytest.raises(CountFailed) as failed:
            await ask(node, name(1))
        assert progress.failed[name(1)] == str(failed.value) == f"{node}: {reason}"
