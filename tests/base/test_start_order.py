"""Dependency order of components (R10; seed 001, "The start of the components")."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.base.start_order import WiringError, start_order


def test_start_order_follows_needs_then_declaration() -> None:
    assert start_order({"http": ("group", "vault"), "group": (), "vault": ("group",)}) == ("group", "vault", "http")


def test_undeclared_need_is_named() -> None:
    with pytest.raises(WiringError, match="http needs vault, which was not declared"):
        start_order({"http": ("vault",)})


def test_dependency_circle_is_named_in_full() -> None:
    with pytest.raises(WiringError, match="b -> c -> b"):
        start_order({"a": ("b",), "b": ("c",), "c": ("b",)})


@given(st.integers(1, 30), st.integers())
def test_start_order_of_any_acyclic_graph_respects_needs(size: int, seed: int) -> None:
    chance = random.Random(seed)
    names = [f"c{number}" for number in range(size)]
    graph = {name: tuple(chance.sample(names[:place], min(place, 3))) for place, name in enumerate(names)}
    shuffled = dict(chance.sample(list(graph.items()), size))
    order = start_order(shuffled)
    assert sorted(order) == sorted(names)
    assert all(order.index(need) < order.index(name) for name in names for need in graph[name])
