"""The command line as a whole. Commands import what they need when they run."""

from __future__ import annotations

import errno
import itertools
import sys
import traceback
from typing import Annotated

import typer

from headroom_bench import __version__
from headroom_bench.cli import (
    catalog_command,
    fetch_model_command,
    inspect_command,
    mock_command,
    predict_command,
    redline_command,
    run_command,
    simulate_command,
)
from headroom_bench.errors import EXIT_WRONG_INPUT, UserError, written_out
from headroom_bench.redaction import redact

app = typer.Typer(
    name="headroom-bench",
    help="How many people can your language-model server serve before the answers get bad?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run_command.run)
app.command("predict")(predict_command.predict)
app.command("simulate")(simulate_command.simulate)
app.command("redline")(redline_command.redline)
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
app.command("mock", context_settings=_PASS_ON)(mock_command.mock)
app.command("fetch-model")(fetch_model_command.fetch_model)
app.command("inspect")(inspect_command.inspect)
app.command("catalog")(catalog_command.catalog)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"headroom-bench {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")
    ] = False,
) -> None:
    """Options of every command."""


def run_app(arguments: list[str]) -> int:
    """Runs one command line; returns its exit code."""
    debug = "--debug" in arguments
    words = [word for word in arguments if word != "--debug"]
    try:
        _refuse_empty(words)
        code = app(args=words, standalone_mode=False)
        return code if isinstance(code, int) else 0
    except UserError as why:
        if debug:
            _tell(traceback.format_exc())
        detail = getattr(why, "detail", "")
        if detail:
            _tell(detail)
        _tell(f"headroom-bench: {_one_line(str(why))}")
        return why.exit_code
    except typer.Exit as end:
        return end.exit_code
    except Exception as why:  # noqa: BLE001  (the last resort: a fault of ours, told as one)
        if _is_usage(why):
            _tell(f"headroom-bench: {_one_line(_usage_message(why))}")
            return EXIT_WRONG_INPUT
        if debug:
            _tell(traceback.format_exc())
        if isinstance(why, OSError) and why.errno in (errno.EMFILE, errno.ENFILE):
            _tell("headroom-bench: too many open files: raise the limit (ulimit -n)")
            return EXIT_WRONG_INPUT
        told = _one_line(f"{type(why).__name__}: {why}")
        _tell(f"headroom-bench: a fault of ours, please report it (--debug shows where): {told}")
        return 1


def _refuse_empty(words: list[str]) -> None:
    """Raises `UserError` for a word that holds nothing, as an unset variable of a script leaves
    one: it would pass for an option left out, or for this folder."""
    for before, word in itertools.pairwise(["", *words]):
        flag, equals, value = word.partition("=")
        if not word:
            where = f"{before} is followed by an empty one" if before else "the first word is empty"
            raise UserError(f"{where}: leave it out")
        if flag.startswith("--") and equals and not value:
            raise UserError(f"{flag} is empty: leave it out")


def _tell(text: str) -> None:
    """To stderr, without keys."""
    print(redact(text), file=sys.stderr)


def _is_usage(why: Exception) -> bool:
    """Whether the parser under typer found the words wrong; it comes vendored or apart."""
    return any(kind.__name__ == "UsageError" for kind in type(why).__mro__)


def _usage_message(why: Exception) -> str:
    told = getattr(why, "format_message", None)
    return str(told()) if callable(told) else str(why)


def _one_line(text: str) -> str:
    """Whatever a file, a server or a user put into it: no terminal obeys what is printed of it."""
    return written_out(" ".join(text.split()))
