"""The report of an audit as one HTML page without references to other files. Pure, except that it imports matplotlib.

Matplotlib draws SVG, which is embedded as it is: some tens of kilobytes, and no script. Plotly would need a script of
4 MB in each page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from io import StringIO
from typing import Any, NamedTuple

from palisade.base.counted import counted
from palisade.base.key_text import key_text
from palisade.pipeline.audit.cluster_findings import CopyRow, MemberDigest, SegmentRow
from palisade.pipeline.audit.findings import Finding
from palisade.pipeline.audit.order import Gap
from palisade.pipeline.audit.timeline import AuditInterval

ROWS_MAX = 200
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1b1f24 }
table { border-collapse: collapse; margin: .5rem 0 1.5rem } th { text-align: left }
td, th { padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #d8dee4; vertical-align: top }
.found { color: #b3261e } .good { color: #1a7f37 } svg { max-width: 100%; height: auto } code { font-size: 90% }
"""


class Content(NamedTuple):
    """`facts`: (name, value) of the summary. `counts`: findings by kind, all of them; `findings`: the first ones.
    `notes`: what was not decided."""

    facts: Sequence[tuple[str, str]]
    counts: dict[str, int]
    findings: Sequence[Finding]
    timeline: Sequence[AuditInterval]
    gaps: Sequence[Gap]
    digests: Sequence[MemberDigest]
    segments: Sequence[SegmentRow]
    copies: Sequence[CopyRow]
    notes: Sequence[str]


def page(content: Content, svgs: Iterable[str]) -> str:
    total = sum(content.counts.values())
    verdict = f'<p class="found">{counted(total, "finding")}</p>' if total else '<p class="good">No findings</p>'
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Palisade audit</title>',
        f"<style>{STYLE}</style></head><body><h1>Palisade audit</h1>{verdict}",
        table(("", ""), content.facts),
        *(f"<p>{escape(note)}</p>" for note in content.notes),
        *(f"<figure>{svg}</figure>" for svg in svgs),
    ]
    if total:
        parts.append("<h2>Findings</h2>")
        parts.append(table(("kind", "number"), sorted(content.counts.items())))
        rows = [
            (each.kind, key_text(each.subject) if each.subject else "", each.revision or "", each.operation, each.text)
            for each in content.findings[:ROWS_MAX]
        ]
        parts.append(table(("kind", "subject", "revision", "operation", "finding"), rows))
        if total > len(rows):
            parts.append(f"<p>The first {len(rows)} of {total}; more are in the table <code>findings</code>.</p>")
    if content.digests:
        digests = [(each.member, each.revision or "", each.chain.hex()[:16], each.problem) for each in content.digests]
        parts += ["<h2>Members</h2>", table(("member", "revision", "digest chain", "problem"), digests)]
    if content.segments:
        states: dict[str, int] = {}
        for each in content.segments:
            states[each.state] = states.get(each.state, 0) + 1
        parts += ["<h2>Segments</h2>", table(("state", "segments"), sorted(states.items()))]
    if content.copies:
        copies = [
            (each.role, each.place, each.local.sequence if each.local else "", _state(each)) for each in content.copies
        ]
        parts += ["<h2>Copies of roles</h2>", table(("role", "copy", "sequence", "state"), copies)]
    return "\n".join([*parts, "</body></html>\n"])


def _state(copy: CopyRow) -> str:
    return copy.problem or ("active" if copy.active else "being filled" if copy.filling else "")


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in header) if any(header) else ""
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>" if head else f"<table>{body}</table>"


def plots(content: Content) -> list[str]:
    """SVG elements: outcomes and latencies over time, and findings by kind."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "palisade", "font.size": 9}):
        found = [_over_time(content)] if content.timeline else []
        return [*found, _by_kind(content.counts)] if content.counts else found


def _over_time(content: Content) -> str:
    from matplotlib.figure import Figure

    rows = content.timeline
    seconds = [row.from_ms / 1000 for row in rows]
    per_s = 1000 / rows[0].width_ms
    figure = Figure(figsize=(10, 5.5), layout="constrained")
    outcomes, latencies = figure.subplots(2, sharex=True)
    outcomes.stackplot(
        seconds,
        [[getattr(row, name) * per_s for row in rows] for name in ("reads_ok", "writes_ok", "failed")],
        labels=("reads", "writes", "failed or unknown"),
        colors=("#4f9ddb", "#66b77b", "#d1495b"),
        step="post",
    )
    outcomes.set_ylabel("operations per second")
    latencies.plot(seconds, [row.p99_ms for row in rows], label="p99", color="#d98b2b", drawstyle="steps-post")
    latencies.plot(seconds, [row.p50_ms for row in rows], label="median", color="#4f6d8f", drawstyle="steps-post")
    latencies.set_ylabel("latency of successful ones (ms)")
    latencies.set_xlabel("seconds since the first operation")
    latencies.set_yscale("symlog", linthresh=1)
    begin = rows[0].wall_ms
    for number, gap in enumerate(content.gaps):
        start = (gap.from_wall_ms - begin) / 1000
        for axes in (outcomes, latencies):
            label = "nothing succeeded" if number == 0 and axes is outcomes else None
            axes.axvspan(start, start + gap.length_ms / 1000, color="#d1495b", alpha=0.15, label=label)
    outcomes.legend(loc="upper right")
    latencies.legend(loc="upper right")
    return _svg(figure)


def _by_kind(counts: dict[str, int]) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 0.6 + 0.35 * len(counts)), layout="constrained")
    axes = figure.subplots()
    names = sorted(counts, reverse=True)
    bars = axes.barh(names, [counts[name] for name in names], color="#d1495b")
    axes.bar_label(bars, padding=3)
    axes.set_xlabel("findings")
    return _svg(figure)


def _svg(figure: Any) -> str:
    held = StringIO()
    figure.savefig(held, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = held.getvalue()
    return text[text.index("<svg") :]
