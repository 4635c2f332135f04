"""`python -m mock_server`: a virtual box that answers as a real server would."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

from headroom_bench.errors import UserError
from headroom_bench.redaction import MASK
from headroom_bench.secret_words import is_variable
from headroom_bench.target import DIALECTS
from headroom_bench.units import parse_size
from mock_server.fault_list import faults_table
from mock_server.options import MockOptions


def main(argv: list[str] | None = None, name: str = "python -m mock_server") -> int:
    """Serve until SIGINT or SIGTERM. Returns the exit code: 2 where an option is wrong. `name`:
    what was typed to get here."""
    try:
        options = _options(argv, name)
        _run(options)
    except UserError as why:
        print(f"{name}: {why}", file=sys.stderr)
        return why.exit_code
    except KeyboardInterrupt:
        pass
    return 0


def _options(argv: list[str] | None, name: str) -> MockOptions:
    given = vars(_parser(name).parse_args(argv))
    if given.pop("list_faults"):
        print(faults_table())
        raise SystemExit(0)
    key_env = given.pop("api_key_env")
    key = None
    if key_env is not None:
        key = os.environ.get(key_env)
        if not key:
            named = key_env if is_variable(key_env) else f"variable {MASK}, which is no name of one"
            raise UserError(f"--api-key-env: the environment has no {named}")
    given["ctx"] = parse_size(given["ctx"], "--ctx")
    if given["pool"] is not None:
        given["pool"] = parse_size(given["pool"], "--pool")
    given["faults"] = tuple(given["faults"])
    given["ping_s"] = given["ping_s"] or None
    return MockOptions(**given, api_key=key)


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows no default where there is none."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or isinstance(action.default, bool | list):
            return action.help
        return super()._get_help_string(action)


class _Parser(argparse.ArgumentParser):
    """Tells what is wrong in one line, as all our commands do."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; --help lists the options")


CTX_HELP = (
    "tokens of the whole server, split over its slots; of each sequence for vllm, sglang, mlx "
    "and with --kv-unified: 32768, 32Ki, 32k"
)


def _parser(name: str) -> argparse.ArgumentParser:
    default = MockOptions()
    parser = _Parser(
        prog=name,
        description="A virtual box that answers over HTTP as a real server would.",
        formatter_class=_Help,
    )
    add = parser.add_argument
    add("--dialect", default=default.dialect, help=", ".join(DIALECTS))
    add("--hardware", default=default.hardware)
    add("--model", default=default.model)
    add("--quant", default=default.quant)
    add("--runtime", help="the dialect's own, if not given")
    add("--backend", help="what the runtime uses on that hardware, if not given")
    add("--slots", type=int, default=default.slots)
    add("--ctx", default=str(default.ctx), help=CTX_HELP)
    add("--ubatch", type=int, help="the runtime's default, if not given")
    add(
        "--pool",
        help="vllm, sglang: tokens that all sequences share; else what memory the weights leave",
    )
    shared = "the slots share one memory (only LM Studio's do, if not given)"
    add("--kv-unified", action="store_true", default=None, help=shared)
    add("--kv-split", action="store_false", dest="kv_unified", default=None, help="each its own")
    add("--draft", metavar="mtp|MODEL", help="what drafts tokens (speculative decoding)")
    drafted = "tokens drafted a pass; without --draft they are looked up, which costs nothing"
    add("--draft-tokens", type=int, metavar="N", help=drafted)
    add("--max-queue", type=int, help="requests that may wait; others get 503 (ollama: 512)")
    add("--kv-k", default=default.kv_k)
    add("--kv-v", default=default.kv_v)
    add("--swa-full", action="store_true")
    add("--host", default=default.host)
    add("--port", type=int, default=default.port, help="0: any free one")
    add("--journal-file", type=Path, help="stderr, if not given")
    form = "llamacpp: the form of its journal, and with it the build that is spoken: J4, J6, J8"
    add("--journal-format", default=default.journal_format, help=form)
    add("--time-scale", type=float, default=default.time_scale, help="times faster than life")
    add("--seed", type=int, default=default.seed)
    add("--alias", help="the model's name in answers")
    add("--metrics", action="store_true", help="llamacpp, sglang: serve /metrics")
    add("--api-key-env", metavar="VAR", help="environment variable that holds the API key")
    add("--loading-s", type=float, default=default.loading_s, help="how long the model loads")
    add("--reasoning", type=int, default=0, metavar="N", help="tokens of reasoning in each answer")
    ping = "llamacpp: seconds of silence after which a stream gets a comment; 0: never"
    add("--ping-s", type=float, default=default.ping_s, help=ping)
    interval = "vllm: tokens that an event holds, unless the request says"
    add("--stream-interval", type=int, default=1, metavar="N", help=interval)
    flag = argparse.BooleanOptionalAction
    add("--cache-report", action=flag, default=True, help="vllm, sglang: usage tells cached tokens")
    add(
        "--request-metrics", action=flag, default=True, help="vllm: usage holds the request's times"
    )
    add("--truth-file", type=Path, help="JSON lines of what really happened to each request")
    fault = "a fault for every request, with its arguments; may be given several times"
    add("--fault", action="append", default=[], dest="faults", metavar="NAME[:ARG…]", help=fault)
    add("--list-faults", action="store_true", help="show every fault and the right reading of it")
    add("--tls-cert", type=Path, help="serve HTTPS with this certificate (PEM)")
    add("--tls-key", type=Path, help="the certificate's key (PEM)")
    add("--tls-self-signed", action="store_true", help="serve HTTPS with a throwaway certificate")
    return parser


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

    def ready(url: str) -> None:
        print(f"listening on {url}", flush=True)

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
