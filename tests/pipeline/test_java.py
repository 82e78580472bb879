"""The check of Java names what to install, before Spark is started."""

from __future__ import annotations

import pytest

from palisade.pipeline.errors import SparkMissing
from palisade.pipeline.java import check_java


@pytest.mark.parametrize("text", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21" 2023-09-19'])
def test_suitable_java_is_accepted(text: str) -> None:
    check_java(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "there is none"),
        ('java version "1.8.0_292"', "this is Java 8"),
        ('openjdk version "11.0.2"', "this is Java 11"),
        ("segmentation fault", "names no version"),
    ],
)
def test_missing_or_unsuitable_java_is_refused_with_the_package(text: str | None, reason: str) -> None:
    with pytest.raises(SparkMissing, match=rf"{reason}.*openjdk-17-jre-headless"):
        check_java(text)
