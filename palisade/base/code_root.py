"""The location of the running code. Child processes get it as PYTHONPATH, so that they run the same code."""

from __future__ import annotations

from pathlib import Path

CODE_ROOT = Path(__file__).resolve().parents[2]
"""The folder that contains `palisade/`."""
