"""What members say to each other: a kind and a list, in the order of the fields below.

`incarnation` is the sender's, so that an answer of a wiped member is not taken for one of the member that the
group knows. `sent_at` is the sender's clock in seconds; an answer echoes it, and only the sender reads it.
"""

from __future__ import annotations

import enum


class Kind(enum.IntEnum):
    """The first 15 kinds are the transport's own."""

    APPEND = 16
    """[term, commit, prev_index, prev_term, sent_at, [[command, term], ...]]"""
    HEARTBEAT = 17
    """[term, sent_at]: to a follower whose log is not known or being replaced by a snapshot."""
    APPEND_REPLY = 18
    """[term, next_index, success, sent_at, incarnation]"""
    HEARTBEAT_REPLY = 19
    """[term, sent_at, incarnation]"""
    PRE_VOTE = 20
    """[term, last_index, last_term]: would you vote for me in `term`?"""
    PRE_VOTE_REPLY = 21
    """[term, granted, own_term, incarnation]"""
    REQUEST_VOTE = 22
    """[term, last_index, last_term, handover]"""
    VOTE = 23
    """[term, granted, incarnation]"""
    CAMPAIGN_NOW = 24
    """[term]: the leader hands over (TimeoutNow)."""
    FORWARD = 25
    """[[number, command], ...]: proposals for the leader."""
    FORWARD_REPLY = 26
    """[[number, outcome, index, term, result], ...]"""
    REQUEST = 27
    """[number, name, arguments]: something that only the leader can do (read index, membership, hand-over)."""
    RESPONSE = 28
    """[number, error kind or None, value or error text]"""
    SNAPSHOT = 29
    """A message of `snapshot_transfer`."""
