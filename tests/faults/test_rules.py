"""The effect of a rule on a packet, and the parsing of packets; no packet is sent (issue 5, `tests/faults`)."""

from __future__ import annotations

import struct
from random import Random

import pytest

from tests.faults.rules import ANY, TCP, UDP, Packet, Rule, Weather, packet_of, partition

NAMES = {bytes((198, 18, 0, 1)): "n1", bytes((198, 18, 0, 2)): "n2"}


def packet(source: str = "n1", destination: str = "n2", port: int = 7501, carries: int = 100) -> Packet:
    return Packet(source, destination, TCP, (40_000, port), carries, carries + 40)


def arrivals(rules: list[Rule], each: Packet, now: float = 10.0, seed: int = 1) -> tuple[float, ...]:
    return Weather(rules).arrivals(each, now, Random(seed))


def ipv4(protocol: int, body: bytes, source: int = 1, destination: int = 2) -> bytes:
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, protocol, 0)
    return header + bytes((198, 18, 0, source)) + bytes((198, 18, 0, destination)) + body


def tcp(data: bytes) -> bytes:
    return ipv4(6, struct.pack("!HHIIBBHHH", 40_000, 7601, 1, 2, 5 << 4, 0x10, 100, 0, 0) + data)


def test_packet_without_rules_arrives_at_once_and_once() -> None:
    assert arrivals([], packet()) == (10.0,)


def test_link_is_broken_in_one_direction_alone() -> None:
    rules = [Rule("n1", "n2", loss=1.0)]
    assert arrivals(rules, packet("n1", "n2")) == ()
    assert arrivals(rules, packet("n2", "n1")) == (10.0,)
    assert arrivals(rules, packet("n1", "n3")) == (10.0,)


def test_answers_may_be_lost_while_bare_acknowledgements_pass() -> None:
    rules = [Rule("n1", "n2", carrying=True, loss=1.0)]
    assert arrivals(rules, packet(carries=1)) == ()
    assert arrivals(rules, packet(carries=0)) == (10.0,)


def test_one_port_may_be_late_while_another_is_in_time() -> None:
    rules = [Rule(port=7501, delay_s=4.0)]
    assert arrivals(rules, packet(port=7501)) == (14.0,)
    assert arrivals(rules, packet(port=7601)) == (10.0,)
    assert arrivals([Rule(port=7501, protocol=UDP, loss=1.0)], packet(port=7501)) == (10.0,)


def test_first_rule_that_fits_decides() -> None:
    rules = [Rule("n1", ANY), Rule(loss=1.0)]
    assert arrivals(rules, packet("n1", "n2")) == (10.0,)
    assert arrivals(rules, packet("n2", "n1")) == ()


def test_loss_duplication_and_reordering_come_as_often_as_they_should_and_from_the_seed() -> None:
    rule = Rule(loss=0.3, duplicate=0.2, jitter_s=0.05)
    weather, chance = Weather([rule]), Random(7)
    fates = [weather.arrivals(packet(), number * 0.001, chance) for number in range(10_000)]
    assert 2_800 < sum(not each for each in fates) < 3_200
    assert 1_200 < sum(len(each) == 2 for each in fates) < 1_600
    firsts = [min(each) for each in fates if each]
    assert firsts != sorted(firsts)
    weather, chance = Weather([rule]), Random(7)
    assert fates == [weather.arrivals(packet(), number * 0.001, chance) for number in range(10_000)]


def test_slow_link_queues_packets_per_direction() -> None:
    weather, chance = Weather([Rule(rate_bytes_s=1_000)]), Random(1)
    each = packet(carries=60)
    assert [weather.arrivals(each, 0.0, chance)[0] for _ in range(3)] == pytest.approx([0.1, 0.2, 0.3])
    assert weather.arrivals(packet("n2", "n1", carries=60), 0.0, chance) == pytest.approx((0.1,))
    assert weather.arrivals(each, 9.0, chance) == pytest.approx((9.1,))


def test_partition_cuts_every_pair_of_its_sides_both_ways_and_no_other() -> None:
    rules = partition(["n1"], ["n2", "n3"])
    cut = {(a, b) for a in ("n1", "n2", "n3") for b in ("n1", "n2", "n3") if not arrivals(rules, packet(a, b))}
    assert cut == {("n1", "n2"), ("n1", "n3"), ("n2", "n1"), ("n3", "n1")}


def test_packets_are_parsed_and_foreign_ones_ignored() -> None:
    assert packet_of(tcp(b"abc"), NAMES) == Packet("n1", "n2", TCP, (40_000, 7601), 3, 43)
    assert packet_of(tcp(b""), NAMES) == Packet("n1", "n2", TCP, (40_000, 7601), 0, 40)
    datagram = ipv4(17, struct.pack("!HHHH", 7501, 7502, 12, 0) + b"swim")
    assert packet_of(datagram, NAMES) == Packet("n1", "n2", UDP, (7501, 7502), 4, 32)
    assert packet_of(ipv4(1, b"ping"), NAMES) == Packet("n1", "n2", 1, (0, 0), 4, 24)
    assert packet_of(b"\x60" + bytes(60), NAMES) is None
    assert packet_of(ipv4(6, b"", destination=9), NAMES) is None
    whole = tcp(b"abc")
    assert all(packet_of(whole[:length], NAMES) is None for length in range(len(whole)))


@pytest.mark.parametrize("wrong", [{"loss": 1.1}, {"duplicate": -0.1}, {"delay_s": -1}, {"jitter_s": float("nan")}])
def test_invalid_rule_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Rule.of(wrong)


def test_rule_survives_encoding() -> None:
    rule = Rule("n1", "n2", carrying=True, loss=1.0)
    assert rule.shown() == {"source": "n1", "destination": "n2", "carrying": True, "loss": 1.0}
    assert Rule.of(rule.shown()) == rule
    with pytest.raises(ValueError, match="colour"):
        Rule.of({"colour": "red"})
