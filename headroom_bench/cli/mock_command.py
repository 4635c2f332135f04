"""`headroom-bench mock`: the bundled mock server by itself."""

from __future__ import annotations

import typer


def mock(context: typer.Context) -> int:
    """Serve a virtual box in real time; `headroom-bench mock --help` lists its options."""
    from mock_server.__main__ import main

    return main(context.args, "headroom-bench mock")
