"""The start of Spark prints nothing that a user can do nothing about, and all else (issue 16)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from palisade.pipeline.quiet_start import LOG, quiet
from tests.support.cli_node import cli_node

SUBMIT = """#!/bin/sh
echo "WARNING: Using incubator modules: jdk.incubator.vector" >&2
echo "opts: $SPARK_SUBMIT_OPTS" >&2
exit 1
"""
OURS = f'"-Dlog4j2.configurationFile={LOG}"'


def test_java_gets_a_quiet_log_and_its_other_lines_are_passed_on(java: None, tmp_path: Path) -> None:
    """`pipeline run --json` wrote 5 lines to stderr, which is for one object."""
    submit = tmp_path / "spark" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(SUBMIT)
    submit.chmod(0o755)
    environment = os.environ | {"SPARK_HOME": str(tmp_path / "spark")}
    environment.pop("SPARK_SUBMIT_OPTS", None)
    with cli_node() as node:
        words = ("pipeline", "run", "history", "--to", str(tmp_path / "to"), "--endpoints", node.endpoint, "--json")
        done = subprocess.run(
            [sys.executable, "-m", "palisade.cli", *words], env=environment, capture_output=True, text=True, check=False
        )
    assert "incubator" not in done.stderr
    passed_on, error = done.stderr.splitlines()
    assert passed_on == f"opts: {OURS}"
    assert (done.returncode, json.loads(error)["error"]["code"]) == (1, "job-failed")  # it was a traceback
    assert "Spark did not start: [JAVA_GATEWAY_EXITED]" in error


@pytest.mark.parametrize("name", ["log4j2.properties", "log4j2.xml", "log4j2-test.yaml"])
def test_log_of_the_user_is_kept(tmp_path: Path, name: str) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "log4j2.properties.template").touch()
    assert quiet({}, tmp_path) == {"SPARK_SUBMIT_OPTS": OURS}
    (tmp_path / "conf" / name).touch()
    assert quiet({}, tmp_path) == {}
    assert quiet({"SPARK_CONF_DIR": str(tmp_path / "conf")}, tmp_path / "other").keys() == {"SPARK_CONF_DIR"}


def test_options_of_the_user_are_kept() -> None:
    assert quiet({"SPARK_SUBMIT_OPTS": "-Xmx1g"}, LOG) == {"SPARK_SUBMIT_OPTS": f"{OURS} -Xmx1g"}
    own = {"SPARK_SUBMIT_OPTS": "-Dlog4j.configurationFile=/etc/log.xml"}
    assert quiet(own, LOG) == own
