"""The load generator for HTTP, wrk(1), with a script that reports as JSON."""

from __future__ import annotations

import asyncio
import json
import os
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent
PUT, RANGE = SCRIPTS / "put.lua", SCRIPTS / "range.lua"
MARK = "RESULT "
GRACE_S = 30.0
TOKEN = "PALISADE_BENCH_TOKEN"
"""The environment variable from which the scripts take the token."""


class LoadFailed(Exception):
    """The figures of a run are invalid; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class HttpFigures:
    """Of one run. Latencies in milliseconds."""

    per_s: float
    p50_ms: float
    p99_ms: float


async def run_wrk(
    script: Path, url: str, keys: Path, *, connections: int, duration_s: float, token: str | None = None
) -> HttpFigures:
    """One thread of wrk against one server; each request carries `token`. Raises LoadFailed if any request failed."""
    wrk = await asyncio.create_subprocess_exec(
        *("wrk", "-t1", f"-c{connections}", f"-d{duration_s:.0f}s", "--timeout", "10s"),
        *("-s", str(script), url, "--", str(keys)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        env=os.environ | ({TOKEN: token} if token is not None else {}),
    )
    try:
        async with asyncio.timeout(duration_s + GRACE_S):
            output = (await wrk.communicate())[0].decode(errors="replace")
    finally:
        if wrk.returncode is None:
            wrk.kill()
            await wrk.wait()
    return read_figures(output)


def read_figures(output: str) -> HttpFigures:
    """The figures in the last line of the script. Raises LoadFailed."""
    lines = [line.removeprefix(MARK) for line in output.splitlines() if line.startswith(MARK)]
    if not lines:
        raise LoadFailed(f"wrk said no figures:\n{output.strip()}")
    said = json.loads(lines[-1])
    if said["errors"] or not said["requests"]:
        raise LoadFailed(f"{said['errors']} of {said['requests']} requests failed:\n{output.strip()}")
    return HttpFigures(said["requests"] / said["duration_us"] * 1e6, said["p50_us"] / 1e3, said["p99_us"] / 1e3)


def write_keys(path: Path, keys: list[bytes]) -> None:
    """One per line, as the JSON paths want them."""
    path.write_bytes(b"\n".join(map(b64encode, keys)) + b"\n")
