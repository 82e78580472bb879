"""etcd3gw, a client of OpenStack for etcd's JSON API: its own functional tests pass against a cluster (issue 16).

The tests are part of the package, as it is installed from PyPI.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys

import pytest

from tests.clients.requirement import require_module
from tests.support.processes import Cluster

pytestmark = pytest.mark.e2e

SUITE = "etcd3gw.tests.test_etcd3gw"
FUNCTIONAL = 23
LONGEST_S = 120.0


async def test_functional_tests_of_etcd3gw_pass(cluster: Cluster) -> None:
    """1 of 23 passed while `/version` was not served."""
    require_module("etcd3gw")
    require_module("oslotest")
    host, _, port = cluster.nodes[0].http.rpartition(":")
    environment = {
        **os.environ, "TOOZ_TEST_ETCD_PORT": port, "TOOZ_TEST_HTTP_URL": f"http://{host}:{port}", "NO_PROXY": "*",
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "unittest", "-v", SUITE), env=environment, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(LONGEST_S):
        output = (await process.communicate())[0].decode()
    assert process.returncode == 0, output[-4000:]
    assert "skipped" not in output, output[-4000:]
    ran = re.search(r"^Ran (\d+) tests", output, re.MULTILINE)
    assert ran is not None
    assert int(ran[1]) >= FUNCTIONAL, output[-4000:]
