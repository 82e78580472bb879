"""scripts/packages.sh: when Java is installed for the tests of the pipeline, and what is printed (issue 18)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
APT = "apt-get install -qy --no-install-recommends openjdk-17-jre-headless"


def prepare_java(
    folder: Path, *, java: str, user: int, installs: str = "", **environment: str
) -> tuple[str, list[str]]:
    """What `prepare_java` prints, and the calls of apt-get. `java`: the version on the path; empty: none. `installs`:
    the version that apt-get installs; empty: it fails."""
    calls = folder / "calls"
    calls.touch()
    script(folder / "id", f"echo {user}")
    if java:
        script(folder / "java", version(java))
    install = f"printf '#!/bin/sh\\n%s' '{version(installs)}' >{folder}/java; chmod +x {folder}/java"
    install = install if installs else "false"
    script(folder / "apt-get", f'echo "apt-get $*" >>{calls}\n[ "$1" = update ] || {{ {install}; }}')
    for tool in ("grep", "basename", "chmod"):
        (folder / tool).symlink_to(f"/usr/bin/{tool}")
    done = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", ". scripts/packages.sh; prepare_java"],
        cwd=ROOT, env={"PATH": str(folder)} | environment, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout + done.stderr, calls.read_text().splitlines()


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def version(java: str) -> str:
    return f'echo "openjdk version \\"{java}\\" 2025-04-15" >&2'


@pytest.mark.parametrize("java", ["17.0.15", "21.0.2", "17", "21-ea"])
def test_java_that_fits_changes_and_prints_nothing(tmp_path: Path, java: str) -> None:
    assert prepare_java(tmp_path, java=java, user=0) == ("", [])


@pytest.mark.parametrize("java", ["", "1.8.0_372", "11.0.2", "170.1"])
def test_root_installs_java_and_says_so_before(tmp_path: Path, java: str) -> None:
    printed, calls = prepare_java(tmp_path, java=java, user=0, installs="17.0.15")
    assert printed == "bash: installing with apt-get, as root: openjdk-17-jre-headless\n"
    assert calls == ["apt-get update -q", APT]


def test_other_users_install_nothing_and_see_what_to_type(tmp_path: Path) -> None:
    printed, calls = prepare_java(tmp_path, java="", user=1000)
    assert calls == []
    assert "THE TESTS OF THE PIPELINE ARE SKIPPED" in printed
    assert "as root: apt-get install openjdk-17-jre-headless" in printed


def test_java_of_java_home_is_not_replaced(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    script(home / "bin/java", version("11.0.2"))
    printed, calls = prepare_java(tmp_path, java="17.0.15", user=0, JAVA_HOME=str(home))
    assert calls == []
    assert f"JAVA_HOME={home} has no Java 17 or 21" in printed


def test_newer_package_is_installed_where_the_older_one_is_missing_and_ci_fails_without_any(tmp_path: Path) -> None:
    printed, calls = prepare_java(tmp_path, java="", user=0, CI="true")
    assert [call.split()[-1] for call in calls] == ["-q", "openjdk-17-jre-headless", "-q", "openjdk-21-jre-headless"]
    assert "ARE GOING TO FAIL" in printed


def test_versions_are_those_that_the_program_accepts() -> None:
    from palisade.pipeline.java import JAVA_VERSIONS

    accepted = "|".join(map(str, JAVA_VERSIONS))
    assert f'version "({accepted})' in (ROOT / "scripts/packages.sh").read_text()
