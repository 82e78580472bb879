"""Why a client has no connection (issue 16)."""

from __future__ import annotations

from errno import ECONNREFUSED

from palisade.client.connection_failures import ConnectionFailures
from palisade.client.refused_addresses import RefusedAddresses


def test_failures_have_the_reason_of_every_address() -> None:
    """With two frozen nodes and one that refused, only the latest attempt was shown."""
    failures = ConnectionFailures()
    failures.failed("a:1", "no answer in time")
    assert failures.text == "a:1: no answer in time"
    failures.failed("b:1", "no leader is known")
    failures.failed("c:1", "no answer in time")
    assert failures.text == "a:1, c:1: no answer in time; b:1: no leader is known"
    failures.failed("a:1", "connection refused")
    assert failures.text == "a:1: connection refused; b:1: no leader is known; c:1: no answer in time"


def test_advice_to_retry_is_not_in_the_middle_of_the_reasons() -> None:
    failures = ConnectionFailures()
    failures.failed("a:1", "no leader is known; not connected: n1, n2; retry")
    failures.failed("b:1", "no answer in time")
    assert failures.text == "a:1: no leader is known; not connected: n1, n2; b:1: no answer in time"


def test_failures_are_forgotten_once_a_node_answers() -> None:
    failures = ConnectionFailures()
    failures.failed("a:1", "no answer in time")
    assert (failures.at("a:1"), failures.at("b:1")) == ("no answer in time", None)
    failures.answered()
    failures.failed("b:1", "connection refused")
    assert failures.text == "b:1: connection refused"


def test_refusals_are_forgotten_with_their_reasons_once_a_node_answers() -> None:
    """Else an address whose node is back stays in the reason of a later wait."""
    refused, known = RefusedAddresses(may_begin=False), ["a:1", "b:1"]
    assert refused.failed("a:1", ConnectionRefusedError(ECONNREFUSED, ""), known) is None
    assert refused.reasons.text == "a:1: connection refused"
    refused.answered()
    assert refused.failed("b:1", ConnectionRefusedError(ECONNREFUSED, ""), known) is None
    assert refused.reasons.text == "b:1: connection refused"
