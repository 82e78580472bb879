"""What holds for every test: processes that it starts hear Ctrl-C, however the tests themselves were started.

A shell starts background processes with SIGINT ignored, and their children inherit that.
"""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.runner.longest import longest_first

signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.support.served_node", "tests.support.data_nodes"]
"""Fixtures of a node over a group of one in memory: `services`, `server`, `http`, `stream`, `client`. `data_cluster` is
one of real processes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items, lambda item: item.path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chain", metavar="FOLDER", help="with -n: all tests below this folder run in one process")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    from tests.runner.scheduling import Chained

    folder = config.getoption("chain")
    return None if folder is None else Chained(config, log, folder)
