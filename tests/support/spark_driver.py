"""Spark drivers in processes of their own, and a standalone cluster of Spark: a master and two workers with two host
names.

A driver runs the functions of `CALLS` with its session, one JSON line for each: so a test can use several masters, kill
a driver, and limit it. Everything stays on loopback. Executors end with their driver or worker.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.faults import kernel
from tests.support.processes import free_port, until
from tests.support.spark_classes import short_lived
from tests.support.spark_home import HOME

ROOT = Path(__file__).parents[2]
CALLS = "tests.support.spark_calls"
WORKER_HOSTS = "127.0.0.2", "127.0.0.3"
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
REGISTERED_S = 60.0


class CallFailed(Exception):
    """The function raised; the text is that of the error."""


class DriverEnded(Exception):
    """The process of the driver ended."""


def environment(**more: str) -> dict[str, str]:
    """Of every process of Spark."""
    found = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    return {**os.environ, **short_lived(), **found, **more}


class SparkDriver:
    def __init__(
        self,
        folder: Path,
        master: str,
        config: Mapping[str, str] | None = None,
        **variables: str,
    ) -> None:
        """`variables` are set in its environment."""
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "driver.log"
        settings = {**CONFIG, "spark.sql.warehouse.dir": str(folder / "warehouse"), **(config or {})}

        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.spark_driver", master, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(**variables),
                cwd=folder,
                text=True,
                start_new_session=True,
                preexec_fn=kernel.die_with_parent,
            )

    def call(self, name: str, /, **arguments: Any) -> Any:
        """The result of a function. Raises CallFailed, DriverEnded."""
        self.begin(name, **arguments)
        return self.result()

    def begin(self, name: str, /, **arguments: Any) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([name, arguments]) + "\n")
            self._process.stdin.flush()

    def result(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise DriverEnded(self.log()[-2_000:])
        error, found = json.loads(line)
        if error:
            raise CallFailed(error)
        return found

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @contextmanager
    def files_limited(self, bytes_max: int) -> Iterator[None]:
        """Writes of the driver and its JVM beyond this size fail as on a full disk (both ignore SIGXFSZ). It
        has answered a call before, so its JVM runs."""
        jvms = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        limits = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in (self._process.pid, *map(int, jvms))}
        try:
            for pid, (_, hard) in limits.items():
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (bytes_max, hard))
            yield
        finally:
            for pid, limit in limits.items():
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)

    def kill(self) -> None:
        """The driver with its JVM; its executors end when they lose it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class StandaloneSpark:
    """`master`: its URL. An application gets two cores, one of each worker; several run at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.master = f"spark://127.0.0.1:{self.port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def running(self) -> bool:
        return bool(self._processes)

    async def start(self) -> None:
        deploy = "-Dspark.deploy.defaultCores=2"
        own = ("--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        self._start("master", "Master", *own, SPARK_MASTER_OPTS=deploy)
        await self._logged("master", "I have been elected leader")
        for number, host in enumerate(WORKER_HOSTS):
            size = ("--host", host, "--cores", "4", "--memory", "8g", "--webui-port", "0")
            place = ("--work-dir", str(self._folder / f"work{number}"), self.master)
            self._start(f"worker{number}", "Worker", *size, *place, SPARK_LOCAL_IP=host)
        for number in range(len(WORKER_HOSTS)):
            await self._logged(f"worker{number}", "Successfully registered with master")

    def _start(self, name: str, role: str, *arguments: str, **variables: str) -> None:
        program = f"org.apache.spark.deploy.{role.lower()}.{role}"
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(HOME / "bin" / "spark-class"), program, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment(**variables),
                    cwd=self._folder,
                    start_new_session=True,
                    preexec_fn=kernel.die_with_parent,
                )
            )

    async def _logged(self, name: str, text: str) -> None:
        log = self._folder / f"{name}.log"
        await until(lambda: text in log.read_text(errors="replace"), f"{text!r} in {log}", REGISTERED_S)

    def stop(self) -> None:
        """The workers first, with their executors, which are in the same process group or end with them."""
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def drivers(folder: Path) -> Iterator[Callable[..., SparkDriver]]:
    """Makes drivers, and kills them at the end."""
    with ExitStack() as stack:
        count = 0

        def make(master: str, config: Mapping[str, str] | None = None, **more: Any) -> SparkDriver:
            nonlocal count
            count += 1
            driver = SparkDriver(folder / f"driver{count}", master, config, **more)
            stack.callback(driver.kill)
            return driver

        yield make


def main(master: str, config: str) -> None:
    """Answers calls until the end of stdin. Spark writes to stdout, so results have a descriptor of their own."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from palisade.spark import session

    spark = session(master, app="test", config=json.loads(config))
    calls = importlib.import_module(CALLS)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = ["", getattr(calls, name)(spark, **arguments)]
        except Exception as error:
            answer = [f"{type(error).__name__}: {error}", None]
        results.write(json.dumps(answer) + "\n")
        results.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
