"""Answers of exactly the length asked for, known in full before their first token is sent."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

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


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `shown` has one entry a generated token: the text that the token shows, empty
    for what a stop string cuts off."""

    shown: tuple[str, ...]
    ended: Literal["limit", "word", "eos"]
    """Why it ends after its last token."""
    stopping_word: str = ""

    @property
    def tokens(self) -> int:
        return len(self.shown)

    @property
    def text(self) -> str:
        return "".join(self.shown)


def write_answer(
    seed: int, prompt_id: str, tokens: int, *, limited: bool, stop: Sequence[str] = ()
) -> Answer:
    """An answer of `tokens` tokens, or up to the first stop string in it.

    `limited`: the length is the asker's or the context's, not the model's own choice.
    """
    pieces = _pieces(seed, prompt_id, tokens)
    text = "".join(pieces)
    hits = [(text.find(word), word) for word in stop if word and word in text]
    if not hits:
        return Answer(pieces, "limit" if limited else "eos")
    # a stop string is noticed at its last letter, so the one that is complete first wins
    start, word = min(hits, key=lambda hit: (hit[0] + len(hit[1]), hit[0]))
    return Answer(_cut(pieces, start, start + len(word)), "word", word)


def _pieces(seed: int, prompt_id: str, tokens: int) -> tuple[str, ...]:
    digest = blake2b(f"{seed}\x1f{prompt_id}".encode(), digest_size=8).digest()
    chosen = random.Random(digest)
    pieces = chosen.choices(WORDS, k=tokens)
    pieces[SENTENCE_TOKENS - 1 :: SENTENCE_TOKENS] = ["."] * (tokens // SENTENCE_TOKENS)
    pieces[0] = chosen.choice(_FIRST)
    return tuple(pieces)


def _cut(pieces: tuple[str, ...], start: int, end: int) -> tuple[str, ...]:
    """The pieces up to the one that holds letter `end - 1`, showing only letters before `start`."""
    shown: list[str] = []
    at = 0
    for piece in pieces:
        shown.append(piece[: max(0, start - at)])
        at += len(piece)
        if at >= end:
            break
    return tuple(shown)
