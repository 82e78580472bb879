"""The HTTP API of a real node of each kind, from its own OpenAPI document: every answer is one that the document knows
(issue 5, "Fuzzing").

Schemathesis makes the requests: what the document allows, and what it does not, at the edges of each field and in
between. Left out: what answers without end (test_http_port.py has it), what would start processes, and the feed, whose
bodies are msgpack.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fuzz_ground import Ground, watched
from tests.support.fuzzing import SECONDS, SEED
from tests.support.processes import NodeProcess

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
CHECKS = [
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance",
]  # fmt: skip
ENDLESS = "/v1/watch|/v3/watch|/v3/lease/keepalive|/v1/feed"
CONFIGURATION = """
[parameters]
"query.timeout_ms" = 20
"query.wait_s" = 0.01

[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "503", "504"]
"""
"""503 and 504 are answers of a node that is not ready, or whose group has no majority in time. What a request may ask
to wait is kept short: the document allows minutes."""
OF_A_WAITING_NODE = "^/(livez|readyz|v1/init|v1/cluster/init)$"
"""It has no document of its own; these are the paths of a member that it serves, too."""
TIMES = {"member": 5, "follower": 2, "standalone": 2, "waiting": 1}
"""How much of the time of a fuzzer each kind takes: it has so many more operations."""


@pytest.mark.parametrize("kind", TIMES)
async def test_every_response_is_documented(ground: Ground, kind: str, tmp_path: Path) -> None:
    node: NodeProcess = getattr(ground, kind)
    url = f"http://{node.http}"
    which = ["--exclude-path-regex", ENDLESS, "--exclude-operation-id", "postV1ScenariosName", f"{url}/openapi.json"]
    if kind == "waiting":
        which = ["--include-path-regex", OF_A_WAITING_NODE, "--url", url, str(ROOT / "palisade/api/openapi.json")]
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(CONFIGURATION)
    async with watched(node, ground.member, unchanged=kind == "standalone"):
        process = await asyncio.create_subprocess_exec(
            *command(configuration, max(2, int(SECONDS * TIMES[kind]))), *which, cwd=tmp_path, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env=os.environ | {"NO_COLOR": "1"},
        )  # fmt: skip
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()[-12_000:]


def command(configuration: Path, seconds: int) -> list[str]:
    program = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(configuration), "run"]
    how = ["--no-color", "--no-shrink", "--continue-on-failure", "--suppress-health-check", "all", "--warnings", "off"]
    what = ["--seed", str(SEED), "--phases", "examples,coverage,fuzzing", "--max-time", str(seconds)]
    return [*program, *how, *what, "--request-timeout", "10", "--checks", ",".join(CHECKS)]
