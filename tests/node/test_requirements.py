"""A node refuses a configuration whose requirements are missing before it writes anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from palisade.base.errors import ConfigError
from palisade.cli.main import main
from palisade.node import requirements
from palisade.node.config_sources import load_node_config

ADDRESSES = {"http": "127.0.0.1:22151", "peer": "127.0.0.1:22152", "stream": "127.0.0.1:22153"}


def refusal(monkeypatch: pytest.MonkeyPatch, data_dir: Path, missing: str = "", **options: str) -> str:
    monkeypatch.setattr(requirements, "is_installed", lambda module: not (missing and module.startswith(missing)))
    options |= {"id": "n1", "cluster": "c", "data-dir": str(data_dir)} | ADDRESSES
    with pytest.raises(ConfigError) as refused:
        requirements.check_requirements(load_node_config(options, None, {}))
    return str(refused.value)


def test_missing_packages_are_refused_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = refusal(monkeypatch, tmp_path, "pyarrow", segments="true")
    assert text.startswith("segments: pyarrow is not installed")
    text = refusal(monkeypatch, tmp_path, "opentelemetry.exporter", **{"otel-endpoint": "http://h:1"})
    assert "pip install '.[otel]'" in text


def test_package_without_its_parent_is_not_installed() -> None:
    """`find_spec` raises an error for it."""
    assert not requirements.is_installed("no_such_parent.child")
    assert requirements.is_installed("json.decoder")


def test_node_with_an_unreadable_password_file_writes_nothing(tmp_path: Path) -> None:
    """It created its journal and its store first, and one without founders waited for `palisade init`."""
    options: dict[str, Any] = {
        "--id": "n1",
        "--cluster": "c",
        "--data-dir": tmp_path / "d",
        "--authorization": "on",
        "--root-password-file": tmp_path / "none",
        **{f"--{name}": address for name, address in ADDRESSES.items()},
    }
    words = [str(word) for pair in options.items() for word in pair]
    result = CliRunner().invoke(main, ["node", *words], env={"PALISADE_JOIN_TOKEN": "12345678"})
    assert (result.exit_code, "none cannot be read: no such file or directory" in result.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
