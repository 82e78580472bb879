"""What these tests need besides the distribution: skipped where it is missing, a failure in CI."""

from __future__ import annotations

import os
import shutil
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

POSTGRES_FOLDERS = "/usr/lib/postgresql/*/bin"


def missing(what: str, remedy: str) -> NoReturn:
    text = f"NOT TESTED: there is no {what} on this machine. {remedy}. In CI (CI=true), this is a failure."
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    warnings.warn(text, stacklevel=2)
    pytest.skip(text)


def require_module(name: str) -> None:
    if find_spec(name) is None:
        missing(name, "Install the extra: pip install -e '.[test]'")


def require_postgres() -> Path:
    """The folder of PostgreSQL's programs."""
    folders = sorted(Path("/").glob(POSTGRES_FOLDERS.lstrip("/")))
    found = shutil.which("pg_ctl")
    if folders:
        return folders[-1]
    if found is not None:
        return Path(found).resolve().parent
    missing("PostgreSQL", "On Debian: apt-get install postgresql")
