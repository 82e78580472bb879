"""What counts as the path of a request, by traces made up here; and the recorder, in this process."""

from __future__ import annotations

import threading
from pathlib import Path

from palisade.metastore import command_codec as codec
from palisade.metastore.requests import Put
from tests.paths.measure import NodePath, different_files
from tests.paths.trace import Function, RequestPath, Trace, Window, path_of
from tests.paths.traced_node import Recorder, product_path

A, B, C, D = (Function(f"{file}.py", name, 1) for file, name in (("x", "a"), ("x", "b"), ("y", "c"), ("z", "d")))
PART = Function("w.py", "a.<locals>.<listcomp>", 2)
WINDOWS = [Window(100, 109), Window(200, 209), Window(300, 309)]
IDLE = [Window(0, 9), Window(10, 19), Window(20, 29)]


def trace(*entries: tuple[int, Function]) -> Trace:
    functions = (A, B, C, D, PART)
    return Trace(0, functions, tuple(sorted((at, functions.index(function)) for at, function in entries)))


def test_path_has_functions_of_enough_windows_in_order_of_first_entry() -> None:
    found = path_of(trace((103, A), (101, C), (105, C), (203, A), (202, C), (303, B)), WINDOWS, IDLE, 2)
    assert found.functions == (C, A)
    assert found.own == {A, C}
    assert found.own_files == {"x.py", "y.py"}
    assert found.sometimes == {B}


def test_path_leaves_out_entries_between_windows_and_comprehensions() -> None:
    entries = [(99, A), (110, A), (199, A), (210, A), (101, PART), (201, PART), (301, PART)]
    assert path_of(trace(*entries), WINDOWS, IDLE, 2).functions == ()


def test_function_is_shared_if_two_idle_windows_entered_it() -> None:
    entries = [(at, each) for at in (100, 200, 300) for each in (A, B, D)]
    found = path_of(trace(*entries, (5, A), (15, A), (5, D), (6, D)), WINDOWS, IDLE, 2)
    assert found.own == {B, D}
    assert found.functions == (A, B, D)
    assert found.own_files == {"x.py", "z.py"}


def test_different_files_are_those_of_one_setting_only() -> None:
    off = RequestPath((A, C), frozenset({A, C}), frozenset())
    on = RequestPath((A, D), frozenset({A, D}), frozenset())
    assert different_files(NodePath(off, off), NodePath(on, on)) == {"y.py", "z.py"}


def test_file_entered_in_some_windows_or_after_the_answer_is_no_difference() -> None:
    short = RequestPath((A,), frozenset({A}), frozenset({C}))
    to_end = RequestPath((A, D), frozenset({A, D}), frozenset())
    long = RequestPath((A, C, D), frozenset({A, C, D}), frozenset())
    assert different_files(NodePath(short, to_end), NodePath(long, long)) == set()
    assert different_files(NodePath(long, long), NodePath(short, to_end)) == set()


def test_recorder_writes_functions_of_the_product_from_all_threads(tmp_path: Path) -> None:
    recorder = Recorder()
    threading.setprofile(recorder.profile)
    began, go = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        go.wait(10)
        codec.encode_command(Put(b"k", b"v"))

    thread = threading.Thread(target=work)
    thread.start()
    threading.setprofile(None)
    began.wait(10)
    recorder.begin()
    try:
        go.set()
        thread.join(10)
    finally:
        recorder.end(tmp_path / "trace")
    found = Trace.read(tmp_path / "trace")
    names = [found.functions[index].name for _, index in found.entries]
    assert names[0] == "encode_command"
    assert all("metastore/" in function.file for function in found.functions)


def test_product_excludes_tests_and_installed_packages() -> None:
    root = Path(__file__).resolve().parents[2]
    assert str(product_path(codec.__file__)).endswith("metastore/command_codec.py")
    assert product_path(__file__) is None
    assert product_path(str(root / ".venv/lib/x.py")) is None
    assert product_path("/usr/lib/python3/asyncio/events.py") is None
    assert product_path("<string>") is None
