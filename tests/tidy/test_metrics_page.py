"""docs/metrics.md agrees with itself, and a difference of a node is found; `e2e/test_metrics_page.py` reads nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.support.metrics_page import KINDS, PAGE, differences, documented, rows


def test_alerts_use_metrics_and_values_of_the_page() -> None:
    known = {name: each for kind in KINDS for name, each in documented(kind).items()}
    for expression, *_ in rows(PAGE.read_text("utf-8"), "Alerts"):
        used = re.findall(r"(palisade_\w+)(?:\{(\w+)=\"([^\"]+)\"\})?", expression)
        assert used, expression
        for name, label, value in used:
            family = known[name.removesuffix("_bucket")]
            assert name.endswith("_bucket") == (family.type == "histogram"), expression
            assert label in family.labels or not label, expression
            assert not label or value in family.labels[label] or not family.labels[label], expression


def exposition(*lines: str) -> str:
    return "\n".join((*lines, ""))


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["# TYPE palisade_new gauge", "palisade_new 1"], "palisade_new: not on the page"),
        (["# TYPE palisade_keys counter", "palisade_keys_total 1"], "palisade_keys_total: not on the page"),
        (["# TYPE palisade_reads_total counter", 'palisade_reads_total{by="x"} 1'],
         "palisade_reads_total: its labels are by"),
        (["# TYPE palisade_keys histogram", 'palisade_keys_bucket{le="+Inf"} 1'], "palisade_keys: it is a histogram"),
        (["# TYPE palisade_role gauge", 'palisade_role{role="king"} 1'], "palisade_role: role=king is not on the page"),
        (["# TYPE palisade_segments gauge", 'palisade_segments{state="local"} 1'],
         "palisade_segments: state=missing, extra, expired, trashed is not served"),
        ([], "palisade_keys: not served"),
    ],
)  # fmt: skip
def test_difference_from_the_page_is_found(lines: Sequence[str], found: str) -> None:
    assert found in differences("member", exposition(*lines))
