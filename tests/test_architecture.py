"""Imports go one way: every module is held to the layout's table."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headroom_bench
import mock_server

HOUSE = Path(headroom_bench.__path__[0])
MOCK = Path(mock_server.__path__[0])

VALUES = {
    "units", "errors", "records", "segments", "measures", "target", "toml_table", "shipped",
    "redaction", "secret_words", "plain", "seeds", "paths",
}  # fmt: skip
"""Small modules at the top that hold values and pure functions: everyone may use them."""

ROOMS: dict[str, set[str]] = {
    "catalog": set(),
    "roofline": {"catalog"},
    "box": {"roofline.pricer"},
    "designs": {"box", "roofline", "catalog"},
    "crowd": set(),
    "network": {"catalog"},
    "simulate": {"crowd", "box", "network"},
    "live": {"crowd"},
    "journal": set(),
    "results": set(),
    "judge": {"results"},
    "report": {"results", "judge"},
    "telemetry": set(),
    "mock_server": {"box", "roofline", "catalog", "designs"},
}
"""What a room may import besides itself and the values."""
ROOMS["experiments"] = set(ROOMS) - {"mock_server"}
ROOMS["cli"] = ROOMS["experiments"] | {"experiments", "mock_server"}

VALUES_MAY: dict[str, set[str]] = {
    "units": {"errors"},
    "errors": set(),
    "records": set(),
    "segments": set(),
    "measures": {"records"},
    "paths": {"errors"},
    "shipped": {"errors", "paths"},
    "redaction": set(),
    "secret_words": {"redaction"},
    "plain": {"errors"},
    "seeds": set(),
    "toml_table": {"errors", "units"},
    "target": {"errors", "shipped", "toml_table", "redaction", "secret_words", "units"},
}

PURE = {"box", "network", "roofline"}
INPUT_OUTPUT = {
    "aiohttp", "asyncio", "http", "httptools", "httpx", "io", "os", "pathlib", "requests", "select",
    "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time",
    "urllib", "uvloop",
}  # fmt: skip


def modules() -> Iterator[tuple[str, str, ast.Module]]:
    """Room (or value), path for the reader, and syntax tree of every module."""
    for root, base in ((HOUSE, HOUSE), (MOCK, MOCK.parent)):
        for path in sorted(root.rglob("*.py")):
            inside = path.relative_to(base)
            room = inside.parts[0] if len(inside.parts) > 1 else inside.stem
            yield room, str(inside), ast.parse(path.read_text("utf-8"))


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Module and name (`""` for whole modules) of every import but those for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from imported(ast.Module([other], []))
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            yield from ((node.module or "", alias.name) for alias in node.names)
        else:
            yield from imported(node)


def ours(tree: ast.AST) -> set[str]:
    """What a module imports of this house, as `room.module` or the name of a value module."""
    found = set()
    for module, name in imported(tree):
        package, _, inside = module.partition(".")
        if package == "mock_server":
            found.add("mock_server")
        elif package == "headroom_bench" and inside:
            found.add(inside)
        elif package == "headroom_bench" and name != "__version__":
            found.add(name)
    return found


def allowed(room: str, wanted: str) -> bool:
    own = wanted.split(".")[0]
    if room in VALUES:
        return wanted in VALUES_MAY[room]
    return own == room or own in VALUES or own in ROOMS[room] or wanted in ROOMS[room]


ALL = list(modules())


@pytest.mark.parametrize(("room", "path", "tree"), ALL, ids=[path for _, path, _ in ALL])
def test_imports_go_one_way(room: str, path: str, tree: ast.Module) -> None:
    if path in ("__init__.py", "__main__.py"):
        assert ours(tree) <= {"cli.app", "cli.output", "errors"}, f"{path} only starts it"
        return
    assert room in ROOMS or room in VALUES, f"{path} is in no room of the layout"
    wrong = sorted(wanted for wanted in ours(tree) if not allowed(room, wanted))
    assert not wrong, f"{path} must not import {wrong}"


@pytest.mark.parametrize("room", sorted(PURE))
def test_pure_rooms_touch_nothing_outside(room: str) -> None:
    for own, path, tree in ALL:
        if own != room:
            continue
        touched = {module.split(".")[0] for module, _ in imported(tree)} & INPUT_OUTPUT
        assert not touched, f"{path} imports {touched}"
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        opened = [call.id for call in calls if isinstance(call, ast.Name) and call.id == "open"]
        assert not opened, f"{path} opens a file"


def test_the_table_has_no_circle() -> None:
    done: set[str] = set()
    left = {room: {name.split(".")[0] for name in may} for room, may in ROOMS.items()}
    while left:
        free = {room for room, may in left.items() if may <= done}
        assert free, f"a circle among {sorted(left)}"
        done |= free
        left = {room: may for room, may in left.items() if room not in free}


def test_the_reader_of_imports_sees_what_it_should() -> None:
    tree = ast.parse(
        "import a.b\n"
        "from headroom_bench import units, __version__\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from headroom_bench.live import wire\n"
        "def f():\n    from headroom_bench.box.box import Box\n"
    )
    assert ours(tree) == {"units", "box.box"}
    assert ("a.b", "") in set(imported(tree))


HEAVY = ("pandas", "numpy", "scipy", "aiohttp", "httpx", "plotly", "pyarrow", "xllamacpp")


def test_the_command_line_starts_without_heavy_imports() -> None:
    code = (
        "import sys, headroom_bench.cli.app\n"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []
