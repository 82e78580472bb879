"""The demo's real data: `palisade query count` of March 2013, as docs/segments.md shows it (issue 17, "Segments")."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from palisade.catalog.demo.flights import find_data, read_rows
from palisade.catalog.demo.tables import FLIGHTS
from tests.support.processes import Cluster, palisade, palisade_json, until

pytestmark = pytest.mark.e2e

DOCUMENT = (Path(__file__).parents[2] / "docs" / "segments.md").read_text(encoding="utf-8")
FLIGHTS_IN_MARCH = 28_834
DAYS = 31


async def test_count_of_the_flights_in_march_is_exact_or_lists_what_is_missing(
    new_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts run before and while the node loads the segments: none of them is too low."""
    month = FLIGHTS.header.index("month")
    assert sum(row[month] == "3" for row in read_rows(find_data(), FLIGHTS)) == FLIGHTS_IN_MARCH
    found = re.search(r"^\$ palisade (query count flights .*)\n(.*)$", DOCUMENT, re.MULTILINE)
    assert found is not None
    command, shown = shlex.split(found[1]), found[2]
    assert shown == f"{FLIGHTS_IN_MARCH:,}"

    monkeypatch.setenv("PALISADE_SEGMENTS", "true")
    cluster = new_cluster(1)
    cluster.start()
    await cluster.ready()
    endpoints = "--endpoints", ",".join(cluster.endpoints)
    await palisade_json("load", "flights", *endpoints)

    async def missing() -> list[str]:
        """Of one count; empty if it is complete."""
        code, out, err = await palisade(*command, "--json", *endpoints)
        if code == 0:
            assert json.loads(out)["rows"] == FLIGHTS_IN_MARCH
            return []
        error = json.loads(err)["error"]
        assert (code, error["code"]) == (3, "segments-unavailable"), err
        assert error["missing"]
        return list(error["missing"])

    assert len(await missing()) == DAYS
    assigned = await palisade_json("segments", "assign", "--replicas=1", "--prefix=flights/2013-03", *endpoints)
    assert assigned["segments"] == DAYS

    async def complete() -> bool:
        return not await missing()

    await until(complete, "all segments of March being served")
    assert (await palisade(*command, *endpoints))[:2] == (0, f"{shown}\n")
