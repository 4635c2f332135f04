"""Options in groups are the same options to whoever types them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from headroom_bench.cli.groups import grouped


@dataclass(frozen=True)
class Colours:
    red: Annotated[int, typer.Option("--red", help="How red.", min=0)] = 3
    blue: Annotated[list[str] | None, typer.Option("--blue")] = None


def app_of(seen: list[object]) -> typer.Typer:
    app = typer.Typer(add_completion=False)

    @app.command()
    @grouped
    def paint(
        *,
        context: typer.Context,
        wall: Annotated[str, typer.Argument()] = "north",
        colours: Colours,
        coats: Annotated[int, typer.Option("--coats")] = 1,
    ) -> int:
        """Paint a wall."""
        given = context.get_parameter_source("red")
        seen.append((wall, colours, coats, given.name if given else None))
        return 0

    return app


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], ("north", Colours(), 1, "DEFAULT")),
        (
            ["south", "--red", "5", "--coats", "2", "--blue", "a", "--blue", "b"],
            ("south", Colours(5, ["a", "b"]), 2, "COMMANDLINE"),
        ),
    ],
)
def test_a_group_is_made_of_its_own_options(words: list[str], told: object) -> None:
    seen: list[object] = []
    app_of(seen)(args=words, standalone_mode=False)
    assert seen == [told]


def test_help_shows_the_options_in_their_groups_place(capsys: pytest.CaptureFixture[str]) -> None:
    app_of([])(args=["--help"], standalone_mode=False)
    out = capsys.readouterr().out
    assert "Paint a wall." in out
    assert "How red." in out
    assert out.index("--red") < out.index("--blue") < out.index("--coats")
    assert "colours" not in out
