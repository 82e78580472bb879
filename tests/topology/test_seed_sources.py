"""Sources of seeds: DNS names that are resolved again, a file, a function (seed 001, issue 17)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from palisade.base.errors import ConfigError
from palisade.node.config_sources import load_node_config
from palisade.topology.seed_sources import CallSeeds, DnsSeeds, FileSeeds, SeedSearch, SeedSource, seed_source_of

HERE = "tests.topology.test_seed_sources"


def answers() -> list[str]:
    return ["10.0.0.7:7701"]


class Seen:
    """What the search reports."""

    def __init__(self, *sources: SeedSource) -> None:
        self.found: list[tuple[str, ...]] = []
        self.search = SeedSearch(sources, lambda: True, self.found.append)

    def round(self) -> tuple[str, ...]:
        asyncio.run(self.search.ask())
        return self.found[-1] if self.found else ()


class Names:
    def __init__(self) -> None:
        self.addresses = ["10.0.0.1:7701", "10.0.0.2:7701"]
        self.error: OSError | None = None

    async def resolve(self, host: str, port: int) -> Iterable[str]:
        assert (host, port) == ("nodes.example", 7701)
        if self.error is not None:
            raise self.error
        return self.addresses


def test_dns_name_is_resolved_again_to_all_its_addresses() -> None:
    names = Names()
    seen = Seen(DnsSeeds("nodes.example", 7701, names.resolve))
    assert seen.round() == ("10.0.0.1:7701", "10.0.0.2:7701")
    names.addresses = ["10.0.0.2:7701", "10.0.0.3:7701"]
    assert seen.round() == ("10.0.0.2:7701", "10.0.0.3:7701")


def test_source_that_fails_keeps_its_last_answer(caplog: pytest.LogCaptureFixture) -> None:
    names = Names()
    seen = Seen(DnsSeeds("nodes.example", 7701, names.resolve))
    before = seen.round()
    names.error = OSError("no such name")
    assert (seen.round(), seen.round(), len(seen.found)) == (before, before, 1)
    assert caplog.text.count("no such name") == 1


def test_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "seeds"
    seen = Seen(FileSeeds(path))
    assert seen.round() == ()
    path.write_text("# the first three\n127.0.0.1:7701\n\n  n2.example:7702  \n")
    assert seen.round() == ("127.0.0.1:7701", "n2.example:7702")
    path.write_text("127.0.0.1:7703\n")
    assert seen.round() == ("127.0.0.1:7703",)


def test_partly_written_file_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "seeds"
    path.write_text("127.0.0.1:7701\n127.0.0.1:7702\n")
    seen = Seen(FileSeeds(path))
    before = seen.round()
    path.write_text("127.0.0.1:7701\n127.0.0.1:")
    assert seen.round() == before


def test_function_and_coroutine_function_are_sources() -> None:
    async def later() -> list[str]:
        return ["10.0.0.8:7701"]

    assert Seen(CallSeeds("x", answers), CallSeeds("y", later)).round() == ("10.0.0.7:7701", "10.0.0.8:7701")


@pytest.mark.parametrize("returned", ["10.0.0.1:7701", 5, ["no port"], None])
def test_function_with_another_result_is_reported_and_ignored(
    caplog: pytest.LogCaptureFixture, returned: object
) -> None:
    assert Seen(CallSeeds("f", lambda: returned)).round() == ()
    assert "source=call:f" in caplog.text


def test_forms_of_a_source() -> None:
    assert seed_source_of("dns:nodes.example:7701") == DnsSeeds("nodes.example", 7701)
    assert seed_source_of("dns:[::1]:7701") == DnsSeeds("::1", 7701)
    assert seed_source_of("file:/etc/seeds") == FileSeeds(Path("/etc/seeds"))
    assert seed_source_of(f"call:{HERE}:answers") == CallSeeds(f"{HERE}:answers", answers)


@pytest.mark.parametrize(
    "text", ["nodes:7701", "dns:nodes", "dns:", "file:", "call:x", "call:no.such:f", f"call:{HERE}:HERE", ""]
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"call:|is not dns:"):
        seed_source_of(text)


def test_option_names_sources(tmp_path: Path) -> None:
    given = {"id": "f1", "cluster": "c1", "data-dir": str(tmp_path), "follow": "true", "http": "127.0.0.1:7411"}
    config = load_node_config({**given, "seeds-from": "dns:localhost:7701,file:/etc/seeds"}, environ={})
    assert config.own_node().seed_sources == (DnsSeeds("localhost", 7701), FileSeeds(Path("/etc/seeds")))
    with pytest.raises(ConfigError, match=r"seeds-from: .* has 'nowhere', which is not dns:HOST:PORT"):
        load_node_config({**given, "seeds-from": "nowhere"}, environ={})
