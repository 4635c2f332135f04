"""`python -m mock_server`: a virtual box that answers as a real server would."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from headroom_bench.errors import UserError
from headroom_bench.units import parse_size
from mock_server.options import MockOptions


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM. Returns the exit code: 2 where an option is wrong."""
    try:
        options = _options(argv)
        _run(options)
    except UserError as why:
        print(f"mock_server: {why}", file=sys.stderr)
        return why.exit_code
    except KeyboardInterrupt:
        pass
    return 0


def _options(argv: list[str] | None) -> MockOptions:
    default = MockOptions()
    parser = argparse.ArgumentParser(
        prog="mock_server",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--dialect", default=default.dialect)
    add("--hardware", default=default.hardware)
    add("--model", default=default.model)
    add("--quant", default=default.quant)
    add("--runtime", default=default.runtime)
    add("--backend", help="what the runtime uses on that hardware, if not given")
    add("--slots", type=int, default=default.slots)
    add("--ctx", default=str(default.ctx), help="tokens of the whole server: 32768, 32Ki, 32k")
    add("--ubatch", type=int, help="the runtime's default, if not given")
    add("--kv-k", default=default.kv_k)
    add("--kv-v", default=default.kv_v)
    add("--swa-full", action="store_true")
    add("--host", default=default.host)
    add("--port", type=int, default=default.port, help="0: any free one")
    add("--journal-file", type=Path, help="stderr, if not given")
    add("--time-scale", type=float, default=default.time_scale, help="times faster than life")
    add("--seed", type=int, default=default.seed)
    add("--alias", help="the model's name in answers")
    add("--metrics", action="store_true", help="serve /metrics")
    add("--api-key-env", metavar="VAR", help="environment variable that holds the API key")
    add("--loading-s", type=float, default=default.loading_s, help="how long the model loads")
    given = vars(parser.parse_args(argv))
    key_env = given.pop("api_key_env")
    key = None
    if key_env is not None:
        key = os.environ.get(key_env)
        if not key:
            raise UserError(f"--api-key-env: the environment has no {key_env}")
    given["ctx"] = parse_size(given["ctx"], "--ctx")
    return MockOptions(**given, api_key=key)


def _run(options: MockOptions) -> None:
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(options))


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # no wheel for this platform: asyncio's timers are a little later
        return None
    loop: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return loop


async def _serve(options: MockOptions) -> None:
    from mock_server.app import serve

    def ready(port: int) -> None:
        print(f"listening on http://{options.host}:{port}", flush=True)

    serving = asyncio.ensure_future(serve(options, ready))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, serving.cancel)
        except NotImplementedError:  # Windows: Ctrl-C raises KeyboardInterrupt instead
            break
    try:
        await serving
    except asyncio.CancelledError:
        return


if __name__ == "__main__":
    sys.exit(main())
