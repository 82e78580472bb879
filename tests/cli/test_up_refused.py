"""A first `palisade up` that is refused leaves nothing behind: the next one found a folder without data, and continued
with its name and ports."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from palisade.cli.supervisor.screen import ScreenLines
from palisade.cli.supervisor.up import UpRefused, UpRequest, opened
from palisade.cli.target import LAYOUT_FILE


@pytest.fixture(autouse=True)
def free_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ports of this machine do not matter."""
    monkeypatch.setattr("palisade.cli.supervisor.up.check_ports", lambda *_, **__: None)


REFUSED = UpRefused("n1: a port is taken")


def refuse(request: UpRequest, *, storage_of: str = "", left: str = "") -> str:
    """The output of an `up` whose nodes refuse to run, after they have logged a line and written these files."""
    out = io.StringIO()

    def run() -> None:
        with opened(request, ScreenLines(out, as_json=True)) as (folder, layout):
            for member in layout.members():
                (folder / member.id).mkdir(exist_ok=True)
                (folder / member.id / "node.log").write_text("palisade node: refused\n")
            if storage_of:
                (folder / storage_of / "data").mkdir()
            if left:
                (folder / left).write_text("x")
            raise REFUSED

    with pytest.raises(UpRefused, match="a port is taken"):
        run()
    return out.getvalue()


def content(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("config", "variables", "text"),
    [
        ("heartbeat-ms = 5", {}, r"heartbeat-ms \(from .*nodes.toml\): 5 is out of range"),
        ("colour = 1", {}, "unknown option 'colour'"),
        ("", {"PALISADE_FOLLOW": "1"}, "a follower is no founding member"),
        ("standalone = true", {}, "standalone: a standalone node belongs to no cluster"),
        (
            "authorization = 'on'\nroot-password-file = '/nonexistent'",
            {"PALISADE_JOIN_TOKEN": "12345678"},
            "root-password-file: /nonexistent cannot be read",
        ),
    ],
)
@pytest.mark.parametrize("exists", [False, True])
def test_configuration_that_the_nodes_refuse_is_refused_before_anything_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: str,
    variables: dict[str, str],
    text: str,
    exists: bool,
) -> None:
    folder, file, out = tmp_path / "of" / "mine", tmp_path / "nodes.toml", io.StringIO()
    file.write_text(config)
    if exists:
        folder.mkdir(parents=True)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    request = UpRequest(folder, node_options=["--config", str(file)])
    with pytest.raises(UpRefused, match=text), opened(request, ScreenLines(out, as_json=True)):
        raise REFUSED
    assert (content(tmp_path), out.getvalue()) == ({"nodes.toml", *(("of", "of/mine") if exists else ())}, "")


def test_refusal_of_all_nodes_leaves_no_new_folder(tmp_path: Path) -> None:
    assert "formatted" in refuse(UpRequest(tmp_path / "of" / "mine"))
    assert content(tmp_path) == set()


def test_refusal_of_all_nodes_leaves_an_empty_folder_empty(tmp_path: Path) -> None:
    refuse(UpRequest(tmp_path))
    assert (tmp_path.exists(), content(tmp_path)) == (True, set())


def test_refusal_keeps_everything_if_a_node_has_created_its_storage(tmp_path: Path) -> None:
    refuse(UpRequest(tmp_path), storage_of="n2")
    assert {LAYOUT_FILE, "LOCK", "n1/node.log", "n2/node.log", "n2/data", "n3/node.log"} <= content(tmp_path)


@pytest.mark.parametrize("left", ["n2/notes.txt", "notes.txt"])
def test_refusal_keeps_files_that_are_not_of_this_run(tmp_path: Path, left: str) -> None:
    refuse(UpRequest(tmp_path / "mine"), left=left)
    assert f"mine/{left}" in content(tmp_path)


def test_refusal_keeps_a_cluster_that_was_formatted_before(tmp_path: Path) -> None:
    request = UpRequest(tmp_path)
    with opened(request, ScreenLines(io.StringIO(), as_json=True)):
        pass
    refuse(request)
    assert {LAYOUT_FILE, "LOCK", "n1/node.log"} <= content(tmp_path)
