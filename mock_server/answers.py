"""Answers of exactly the length asked for, known in full before their first token is sent."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, NamedTuple

from mock_server.tokens import split

SENTENCE_TOKENS = 12
"""Every so many tokens one is a full stop."""

_WORDS = """
able about above across after again air all along also among animal answer any area arm around art
ask autumn away back bank base bay beach bear because become bed before behind below best better
between big bird black blue boat body book both bottom branch bread bridge bright bring brother
build busy call calm camp carry cause center chair change child circle city clean clear climb clock
close cloud coast cold color common complete corner country course cover cross current dance dark
day deep degree depth desert differ dinner direct distance door double down draw dream drink drive
dry dust each early earth east easy edge eight else empty end energy enough enter equal evening
even every exact example eye face fact fair fall family far farm fast father field fill final find
fine fire first fish flat floor flow flower follow food foot forest form forward free fresh friend
from fruit full garden gather gentle give glass gold good grass great green ground group grow half
hand happen harbor head hear heart heavy height help hidden high hill hold home honest hope horse
hour house human ice idea inside island join journey keep kind lake land large last late laugh lead
leaf learn leave left lesson letter level light line list listen little long look low machine many
map mark market matter meadow measure meet middle mile mind minute moment month moon morning most
mother mountain move music name narrow nature near night north note number ocean offer often old
open order other over page paint paper part path pattern people place plain plant point quiet rain
reach read ready reason record rest right ring rise river road rock roof room root round same sand
school sea season second seed serve seven shade shape share shore short side silver simple single
six sky slow small smooth snow soft soil song sound south space spring square stand star start
station still stone story street strong summer table tall teach thin thing think thread three time
today together top touch toward town trade travel tree turn under until valley village voice wait
walk wall warm watch water wave west wheel whole wide wind window winter wood word work world year
"""
WORDS = tuple(f" {word}" for word in _WORDS.split())
_FIRST = tuple(word.strip().capitalize() for word in WORDS)


Channel = Literal["content", "reasoning", "tool", ""]
"""Where a token's text goes; empty for a token that shows nothing."""
Ending = Literal["limit", "word", "eos", "tool"]


class Piece(NamedTuple):
    """What one token shows."""

    channel: Channel
    text: str


class ToolCall(NamedTuple):
    """A call that an answer makes. `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: one piece a generated token, its text empty for what a stop string cuts off."""

    pieces: tuple[Piece, ...]
    ended: Ending
    """Why it ends after its last token."""
    stopping_word: str = ""
    call: ToolCall | None = None

    @property
    def tokens(self) -> int:
        return len(self.pieces)

    @property
    def text(self) -> str:
        return self._shown("content")

    @property
    def thought(self) -> str:
        return self._shown("reasoning")

    @property
    def arguments(self) -> str:
        """The call's arguments as far as the answer's length let them come."""
        return self._shown("tool")

    @property
    def thought_tokens(self) -> int:
        return sum(1 for piece in self.pieces if piece.channel == "reasoning")

    def said_back(self) -> str:
        """The text that comes with the next turn, when the asker sends the answer back."""
        return self.text if self.call is None else call_text(*self.call)

    def _shown(self, channel: Channel) -> str:
        return "".join(piece.text for piece in self.pieces if piece.channel == channel)


NOTHING = Answer((), "eos")


def write_answer(
    key: str, tokens: int, *, limited: bool, thought_tokens: int = 0, stop: Sequence[str] = ()
) -> Answer:
    """An answer of `tokens` tokens, or up to the first stop string in it.

    Equal `key`: equal text. The first `thought_tokens` are reasoning, as far as the length goes.
    `limited`: the length is the asker's or the context's, not the model's own choice.
    """
    thought_tokens = min(thought_tokens, tokens)
    thoughts = tuple(Piece("reasoning", text) for text in _prose(f"{key}/thought", thought_tokens))
    prose = _prose(key, tokens - thought_tokens)
    text = "".join(prose)
    hits = [(text.find(word), word) for word in stop if word and word in text]
    if not hits:
        said = tuple(Piece("content", text) for text in prose)
        return Answer(thoughts + said, "limit" if limited else "eos")
    # a stop string is noticed at its last letter, so the one that is complete first wins
    start, word = min(hits, key=lambda hit: (hit[0] + len(hit[1]), hit[0]))
    return Answer(thoughts + _cut(prose, start, start + len(word)), "word", word)


def write_call(key: str, call: ToolCall, most_tokens: int, *, thought_tokens: int = 0) -> Answer:
    """An answer that calls a tool, cut after `most_tokens`. Tokens of the call's frame show
    nothing, as parsers of tool calls hold them back."""
    thought_tokens = min(thought_tokens, most_tokens)
    made = [Piece("reasoning", text) for text in _prose(f"{key}/thought", thought_tokens)]
    whole = call_text(*call)
    start = whole.index(call.arguments, len(_CALL_HEAD) + len(call.name))
    end = start + len(call.arguments)
    at = 0
    for piece in split(whole):
        text = piece.decode("utf-8", "replace")
        shown = text[max(0, start - at) : max(0, end - at)]
        made.append(Piece("tool", shown) if shown else Piece("", ""))
        at += len(text)
    ended: Ending = "tool" if len(made) <= most_tokens else "limit"
    return Answer(tuple(made[:most_tokens]), ended, call=call)


_CALL_HEAD = '<tool_call>\n{"name": "'


def call_text(name: str, arguments: str) -> str:
    """A tool call as the model writes it, in Hermes' form."""
    return f'{_CALL_HEAD}{name}", "arguments": {arguments}}}\n</tool_call>'


def _prose(key: str, tokens: int) -> tuple[str, ...]:
    if tokens < 1:
        return ()
    chosen = random.Random(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    first = chosen.choice(_FIRST)  # before the others, so that a shorter answer begins a longer one
    pieces = [first, *chosen.choices(WORDS, k=tokens - 1)]
    pieces[SENTENCE_TOKENS - 1 :: SENTENCE_TOKENS] = ["."] * (tokens // SENTENCE_TOKENS)
    return tuple(pieces)


def _cut(pieces: tuple[str, ...], start: int, end: int) -> tuple[Piece, ...]:
    """The pieces up to the one that holds letter `end - 1`, showing only letters before `start`."""
    shown: list[Piece] = []
    at = 0
    for piece in pieces:
        shown.append(Piece("content", piece[: max(0, start - at)]))
        at += len(piece)
        if at >= end:
            break
    return tuple(shown)
