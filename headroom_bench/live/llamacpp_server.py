"""A real llama.cpp server from PyPI: `python -m headroom_bench.live.llamacpp_server --model GGUF`.

Runs xllamacpp's native server in this process. Its journal goes to stderr as llama-server's own
would; one line on stdout says when it listens. Ends on SIGTERM, on SIGINT, and with its parent.
Exit status 2 with one line on stderr when xllamacpp or the model is missing or does not start.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from headroom_bench.errors import UserError

_PR_SET_PDEATHSIG = 1
_PARENT_POLL_S = 0.25
_TEARDOWN_S = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        _serve(options)
    except UserError as error:
        print(f"llamacpp_server: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def default_threads() -> int:
    """One core is left to the benchmark: llama.cpp's threads spin, and on busy cores collapse."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min(cores - 1, 4))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m headroom_bench.live.llamacpp_server",
        description="A real llama.cpp server from PyPI (pip install 'headroom-bench[llamacpp]').",
    )
    add = parser.add_argument
    add("--model", required=True, type=Path, metavar="GGUF", help="the model file")
    add("--alias", metavar="NAME", help="name shown to clients (default: the file's)")
    add("--host", default="127.0.0.1")
    add("--port", required=True, type=_positive)
    add("--ctx", type=_positive, default=4096, help="tokens of all slots together (%(default)s)")
    add("--slots", type=_positive, default=2, help="requests served at once (%(default)s)")
    add("--threads", type=_positive, default=default_threads(), help="(here: %(default)s)")
    add("--metrics", action=argparse.BooleanOptionalAction, default=True, help="serve /metrics")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _serve(options: argparse.Namespace) -> None:
    parent = os.getppid()
    _die_with(parent)
    # Loading holds the interpreter, and a Python handler would wait for its end.
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, signal.SIG_DFL)
    server = _start(options)
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, _leave)
    print(f"listening on {server.listening_address} ({_describe(options)})", flush=True)
    try:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_S)
    finally:
        # Closing flushes the journal; should a stream hold it up, the alarm ends the process.
        for asked in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(asked, signal.SIG_DFL)
        signal.alarm(_TEARDOWN_S)
        del server
        signal.alarm(0)


def _leave(_signum: int, _frame: object) -> NoReturn:
    raise SystemExit(0)


def _die_with(parent: int) -> None:
    """Linux: the kernel kills this process when its parent ends. Elsewhere only the poll does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            raise SystemExit(0)


def _describe(options: argparse.Namespace) -> str:
    return (
        f"{options.model.name}, slots {options.slots}, tokens together {options.ctx}, "
        f"threads {options.threads}"
    )


def _start(options: argparse.Namespace) -> Any:
    """Load the model and listen; returns xllamacpp's server."""
    try:
        import xllamacpp
    except ModuleNotFoundError as error:
        raise UserError(
            "xllamacpp is not installed; run: pip install 'headroom-bench[llamacpp]'"
        ) from error
    except ImportError as error:
        raise UserError(f"xllamacpp cannot be loaded here: {error}") from error
    if not options.model.is_file():
        raise UserError(f"there is no model file {options.model}")
    try:
        return xllamacpp.Server(_parameters(xllamacpp.CommonParams(), options))
    except RuntimeError as error:
        raise UserError(
            f"llama.cpp could not serve {options.model} on {options.host}:{options.port}; "
            "its lines above say why"
        ) from error


def _parameters(params: Any, options: argparse.Namespace) -> Any:
    params.model.path = str(options.model)
    if options.alias:
        params.model_alias = {options.alias}
    params.hostnames = [options.host]
    params.port = options.port
    params.n_ctx = options.ctx
    # Said outright: left to itself, newer llama.cpp lets the slots share one cache.
    params.n_parallel = options.slots
    params.kv_unified = False
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.endpoint_metrics = options.metrics
    # The level at which the timing lines are written.
    params.verbosity = 3
    return params


if __name__ == "__main__":
    sys.exit(main())
