"""Rounds for a fuzzer, named after its test; whatever fails prints how it is played again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.support.fuzz_ground import Ground, make_ground
from tests.support.fuzzing import Rounds


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> Iterator[Rounds]:
    made = Rounds(request.node.name)
    yield made
    print(f"{made.number} rounds, the last: {made}")


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    made = asyncio.run(make_ground(tmp_path_factory.mktemp("ground")))
    yield made
    made.kill()
