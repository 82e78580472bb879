"""A node for commands that run in the process of the test. Some files have another `node` or `run` of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from palisade.cli.main import main
from tests.support.cli_node import CliNode, cli_node


@pytest.fixture(scope="module")
def shared() -> Iterator[CliNode]:
    """For all tests of a file."""
    with cli_node() as node:
        yield node


@pytest.fixture
def node(shared: CliNode) -> CliNode:
    return shared


@pytest.fixture
def run(node: CliNode) -> Callable[..., Result]:
    return lambda *arguments: CliRunner().invoke(main, arguments, env={"PALISADE_ENDPOINTS": node.endpoint})
