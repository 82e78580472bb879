"""The jobs of `palisade pipeline run`: every module of this folder is one, and has a constant `JOB`."""

from __future__ import annotations

import importlib
import pkgutil

from palisade.pipeline.errors import BadOption
from palisade.pipeline.job import Job


def names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def job_named(name: str) -> Job:
    """Raises BadOption."""
    if name not in names():
        raise BadOption(f"there is no job {name!r}; there are {', '.join(names())}")
    found: Job = importlib.import_module(f"{__name__}.{name}").JOB
    return found
