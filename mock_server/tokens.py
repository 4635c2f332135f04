"""The mock's own tokenizer: deterministic, reversible, and additive on plain prose.

A short word with the blank before it is one token, as in today's vocabularies, so that a text of n
words and full stops has n tokens, however it is cut. An indent is one more, as it is in theirs:
SmolLM2 counts Python's lines 1.0 to 1.2 times as long as we guess them, this one 1.0 to 1.3 times.
"""

from __future__ import annotations

import re
from zlib import crc32

VOCAB_TOKENS = 49152
BYTES_FROM = 3
"""Ids below are left to special tokens; the 256 bytes follow."""
_PIECES_FROM = BYTES_FROM + 256
_PROBES = 16
LONGEST_LETTERS = 12
"""No token has more: the template's longest mark."""

_PIECE = re.compile(
    r"<\|im_(?:start|end)\|>"  # the template's marks
    r"| ?[A-Za-z]{1,10}"  # a longer word is cut after every tenth letter
    r"| ?[0-9]{1,3}"
    r"| ?[!-/:-@\[-`{-~]"  # one mark of punctuation
    r"| +(?= )"  # an indent, but for the blank before its first word
    r"|[^\x00-\x7f]+"  # a token for each byte
    r"|[\x00-\x7f]"  # line ends, blanks
)


def split(text: str) -> list[bytes]:
    """The text's tokens, which join to its UTF-8 bytes."""
    pieces: list[bytes] = []
    for piece in _PIECE.findall(text):
        if piece.isascii():
            pieces.append(piece.encode("ascii"))
        else:
            # JSON may carry lone surrogates, which strict UTF-8 refuses
            pieces += [bytes((b,)) for b in piece.encode("utf-8", "surrogatepass")]
    return pieces


def count(text: str) -> int:
    """How many tokens `text` has."""
    return len(_PIECE.findall(text)) if text.isascii() else len(split(text))


class Vocabulary:
    """Ids of pieces. A piece's id is its hash; what ids mean is remembered as pieces are seen."""

    def __init__(self) -> None:
        self._seen: dict[int, bytes] = {}

    def id_of(self, piece: bytes) -> int:
        """The piece's id. Where its places are all taken, the first one's old piece is forgotten,
        so that memory stays bounded."""
        if len(piece) == 1:
            return BYTES_FROM + piece[0]
        places = VOCAB_TOKENS - _PIECES_FROM
        start = crc32(piece)
        for step in range(_PROBES):
            number = _PIECES_FROM + (start + step) % places
            if self._seen.setdefault(number, piece) == piece:
                return number
        number = _PIECES_FROM + start % places
        self._seen[number] = piece
        return number

    def piece_of(self, number: int) -> bytes:
        """The bytes of a token; empty for an id that was never given out."""
        if BYTES_FROM <= number < _PIECES_FROM:
            return bytes((number - BYTES_FROM,))
        return self._seen.get(number, b"")
