"""The attributes of an error besides its text reach the client, over the stream and over HTTP."""

from __future__ import annotations

import json

import pytest

from palisade.api.http.problems import problem_of
from palisade.api.stream.frame_checks import error_fields
from palisade.metastore.errors import Compacted
from palisade.wire.error_codes import error_of
from palisade.wire.fencing_errors import ReleasePending


@pytest.mark.parametrize("error", [ReleasePending.of(9, "; n3 has to stage it"), Compacted("gone", 9)])
def test_stream_error_contains_its_revision(error: Exception) -> None:
    heard = error_of(*error_fields(error))
    assert (type(heard), str(heard), vars(heard)) == (type(error), str(error), vars(error))


def test_http_problem_contains_the_revision() -> None:
    pending = json.loads(problem_of(ReleasePending.of(9, "")).body)  # type: ignore[arg-type]
    assert (pending["status"], pending["code"], pending["revision"]) == (504, "release-pending", 9)
    compacted = json.loads(problem_of(Compacted("gone", 8)).body)  # type: ignore[arg-type]
    assert (compacted["status"], compacted["code"], compacted["minimal_revision"]) == (410, "compacted", 8)
