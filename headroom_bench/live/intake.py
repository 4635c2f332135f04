"""An answer as it comes in: its pieces stamped, its size bounded, its end seen, its phases timed.

The same for every transport. Nothing is parsed here but for a search of the marks that end a
stream; whether a token has come is asked only when a phase runs out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence

from headroom_bench.live.clock import monotonic_ns
from headroom_bench.live.exchange import Ended, Exchange
from headroom_bench.live.timeouts import Timeouts
from headroom_bench.live.unpacking import PackingError, Unpacker, packing

LARGEST_ANSWER_BYTES = 64 * 2**20
LARGEST_ANSWER_PIECES = 2**19
"""A longer answer is cut off by us: no token stream is that long, and memory is not endless. Every
piece costs some 100 bytes beside its own, so their number is bounded too."""
LARGEST_TOGETHER_BYTES = 2**31
"""What all answers that are coming may hold together; above it those with more than their share of
it are cut off."""
LARGEST_HEAD_BYTES = 2**18
_READ_BYTES = 128
"""What a read costs beside its bytes."""
CHECK_EVERY_BYTES = 2**16
"""So much is taken in between two looks at these bounds, which need not hold to the byte."""

LARGEST_SEARCHED_BYTES = 2**22
"""So much of a packed body is unpacked as it comes to search it for its end, and no more: that
takes some 10 ms at the most, in which nobody else's bytes are stamped."""
MEMBER_BYTES = 1024
"""As so many counts each of a body's gzip members: to begin one is work, however little it holds.
"""

OPEN_BODY_GRACE_S = 0.25
"""How long a body may stay open after its stream said `[DONE]`, or an error, before we hang up."""
FINISHED_GRACE_S = 2.0
"""How long it may be silent after a finish reason: usage and `[DONE]` may follow, or nothing."""

_ERROR = rb'\{ ?"error" ?: ?(?:\{ ?"|"[^"]|[1-9t])'  # null, 0 and false are none
_MARKS = rb"(?:data: ?(?:\[DONE\]|%b)|error: ?\{|event: ?error[\r\n])" % _ERROR
_END_MARK = re.compile(rb"(?:^|[\r\n])" + _MARKS)
_END_MARK_WITHIN = re.compile(rb"[\r\n]" + _MARKS)
_FINISH_MARK, _SPACED_FINISH_MARK = b'"finish_reason":"', b'"finish_reason": "'
_FINISHED = re.compile(rb'"finish_reason": ?"[^"]')  # some servers send "" before the end
_MARK_REACH = len(b'\ndata: { "error" : { "')
"""So much of what came before is looked at again, since any mark may be cut."""

_LINE_END = re.compile(rb"[\r\n]")
_LONGEST_COMMENT = 1024
"""Bytes; a longer line keeps nothing alive."""

HasToken = Callable[[Exchange], Iterator[bool]]
"""Looks through what has come of an answer for a token, in short steps; the first True ends it."""
SEARCH_SLICE_NS = 1_000_000
"""Longest stretch of that before the event loop gets its turn."""


def any_byte(exchange: Exchange) -> Iterator[bool]:
    """The plainest `HasToken`: the body has begun."""
    yield exchange.first_byte_ns > 0


class Held:
    """What the answers that are coming hold in memory, all together."""

    __slots__ = ("answers", "size")

    def __init__(self) -> None:
        self.answers = 0
        self.size = 0


class Intake:
    """Fills one exchange. `hang_up` closes its connection; called unless it ended as HTTP says."""

    def __init__(
        self,
        exchange: Exchange,
        hang_up: Callable[[], None],
        timeouts: Timeouts,
        patience_s: float | None,
        has_token: HasToken,
        held: Held,
    ) -> None:
        self.exchange = exchange
        self.open = True
        self.stamp_ns = exchange.sent_ns
        """Arrival of the latest bytes, which are being taken in."""
        self._hang_up = hang_up
        self._timeouts = timeouts
        self._patience_s = patience_s
        self._has_token = has_token
        self._began = False
        self._search: Iterator[bool] | None = None
        """For the first token, as far as it got."""
        self._moved_ns = 0
        """Arrival of the latest piece that was no keep-alive comment, which people see as silence,
        among the pieces that were looked at."""
        self._looked_at = 0
        self._finished = False
        self._closing: asyncio.TimerHandle | None = None
        self._tail = b""
        self._unpacker: Unpacker | None = None
        self._searched_bytes = 0
        """Of a packed body."""
        self._bytes = 0
        """Read up to the latest look at its size, and since then."""
        self._new_bytes = 0
        self._held = held
        held.answers += 1
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._timer = self._loop.call_later(self._first_look_s(), self._look_at_the_clock)

    async def ended(self) -> None:
        await self._ended

    def finish(self, how: Ended, problem: str = "", at_ns: int = 0) -> None:
        """Ends the exchange, once; anything but a complete message closes the connection. What
        goes wrong after the stream's own end does not matter any more."""
        if not self.open:
            return
        self.open = False
        exchange = self.exchange
        if exchange.end_ns and how != "complete":
            how, problem = "marker", ""
        exchange.ended, exchange.problem = how, problem
        exchange.end_ns = exchange.end_ns or at_ns or monotonic_ns()
        self._timer.cancel()
        if not self._ended.done():  # whoever waited may have been cancelled
            self._ended.set_result(None)
        self._let_go()
        if how != "complete":
            self._hang_up()

    def discard(self) -> None:
        """Forgets an exchange that never began."""
        self.open = False
        self._timer.cancel()
        self._ended.cancel()
        self._let_go()

    def _let_go(self) -> None:
        if self._closing is not None:  # it would keep all that was read until it is due
            self._closing.cancel()
            self._closing = None
        self._search = None
        self._held.answers -= 1
        self._held.size -= self._bytes

    def take_raw(self, size: int) -> bool:
        """Counts bytes as they arrive, whatever they are; False when they are too many."""
        self.stamp_ns = monotonic_ns()
        self._new_bytes += size + _READ_BYTES
        if self._new_bytes > CHECK_EVERY_BYTES:
            self._check_size()
        return self.open

    def take_piece(self, piece: bytes) -> None:
        """Takes bytes that arrived and are a piece of the body, which has begun: `take_raw` and
        `on_body` in one, for nearly every read of a stream."""
        self.stamp_ns = stamp_ns = monotonic_ns()
        self._new_bytes += len(piece) + _READ_BYTES
        if self._new_bytes > CHECK_EVERY_BYTES:
            self._check_size()
            if not self.open:
                return
        exchange = self.exchange
        exchange.pieces.append(piece)
        exchange.stamps_ns.append(stamp_ns)
        if not exchange.end_ns:
            self._look_for_end(piece)

    def on_body(self, piece: bytes) -> None:
        if not self.open:
            return
        exchange = self.exchange
        exchange.pieces.append(piece)
        exchange.stamps_ns.append(self.stamp_ns)
        if not exchange.first_byte_ns:
            exchange.first_byte_ns = self.stamp_ns
            self._begin_unpacking()
        if not exchange.end_ns:
            self._look_for_end(piece)

    def _check_size(self) -> None:
        self._bytes += self._new_bytes
        self._held.size += self._new_bytes
        self._new_bytes = 0
        exchange, held = self.exchange, self._held
        if not exchange.headers_ns and self._bytes > LARGEST_HEAD_BYTES:
            self.finish("too_large", f"headers of more than {LARGEST_HEAD_BYTES:,} bytes")
        elif self._bytes > LARGEST_ANSWER_BYTES:
            self.finish("too_large", f"more than {LARGEST_ANSWER_BYTES:,} bytes")
        elif len(exchange.pieces) > LARGEST_ANSWER_PIECES:
            self.finish("too_large", f"more than {LARGEST_ANSWER_PIECES:,} pieces")
        elif held.size > LARGEST_TOGETHER_BYTES < self._bytes * held.answers:
            together = f"{held.answers} answers of more than {LARGEST_TOGETHER_BYTES:,} bytes"
            self.finish("too_large", f"the largest of {together} together")

    # the end of the stream

    def _begin_unpacking(self) -> None:
        name = packing(self.exchange.headers.get("content-encoding", ""))
        try:
            self._unpacker = Unpacker(name) if name else None
        except PackingError:
            self.finish("marker")  # nobody can read on; who reads what there is says why

    def _look_inside(self, unpacker: Unpacker, packed: bytes) -> None:
        self._unpacker = None  # what it holds is not packed
        try:
            for piece in unpacker.feed(packed):
                self._searched_bytes += len(piece)
                if not self.exchange.end_ns:
                    self._look_for_end(piece)
                members_bytes = unpacker.members * MEMBER_BYTES
                if self._searched_bytes + members_bytes > LARGEST_SEARCHED_BYTES:
                    return
        except PackingError:
            self.finish("marker")
        self._unpacker = unpacker

    def _look_for_end(self, piece: bytes) -> None:
        """Sees the stream's end mark, also when it is split over pieces.

        A server that says `[DONE]` normally ends the body at once, and the connection can be used
        again; one that leaves it open is not waited for.
        """
        if self._unpacker is not None:
            self._look_inside(self._unpacker, piece)
            return
        tail = self._tail
        window = tail + piece if tail else piece
        find = window.find  # `in` takes twice as long: it first asks whether bytes are a number
        if (find(b"[DONE]") >= 0 or find(b"error") >= 0) and (
            _END_MARK_WITHIN if tail else _END_MARK
        ).search(window):
            self.exchange.end_ns = self.stamp_ns
            self._close_in(OPEN_BODY_GRACE_S, self._close_ended)
        elif (
            not self._finished
            and (find(_FINISH_MARK) >= 0 or find(_SPACED_FINISH_MARK) >= 0)
            and _FINISHED.search(window)
        ):
            self._finished = True
            self._close_in(FINISHED_GRACE_S, self._close_if_silent)
        if piece.endswith(b"\n\n"):
            self._tail = b""
        else:  # which begins a line only where a line end stands in it
            self._tail = (window if tail else b"\n" + window)[-_MARK_REACH:]

    def _close_ended(self) -> None:
        self.finish("marker")

    def _close_if_silent(self) -> None:
        """The answer has finished; what follows it has come, or will not."""
        if not self.open:
            return
        silent_s = (monotonic_ns() - self.stamp_ns) * 1e-9
        if silent_s >= FINISHED_GRACE_S:
            self.finish("marker", at_ns=self.stamp_ns)
        else:
            self._close_in(FINISHED_GRACE_S - silent_s, self._close_if_silent)

    def _close_in(self, wait_s: float, close: Callable[[], None]) -> None:
        if self._closing is not None:
            self._closing.cancel()
        self._closing = self._loop.call_later(wait_s, close)

    # the phases

    def _first_look_s(self) -> float:
        limits = self._timeouts
        patience_s = limits.request_s if self._patience_s is None else self._patience_s
        return min(
            patience_s,
            limits.until_headers_s,
            limits.first_token_s,
            limits.silence_s,
            limits.request_s,
        )

    def _look_at_the_clock(self) -> None:
        """Ends the exchange if a phase ran out; else looks again when the next one may have."""
        if not self.open:
            return
        if not self._looked_for_token():
            self._timer = self._loop.call_later(0, self._look_at_the_clock)
            return
        now_ns = monotonic_ns()
        due = sorted(self._deadlines())
        for at_ns, how, problem in due:
            if at_ns <= now_ns:
                self.finish(how, problem)
                return
        # Looking once in every stretch of allowed silence misses none: tokens may begin meanwhile.
        wait_s = min(self._timeouts.silence_s, max(0.001, (due[0][0] - now_ns) * 1e-9))
        self._timer = self._loop.call_later(wait_s, self._look_at_the_clock)

    def _looked_for_token(self) -> bool:
        """Goes on looking whether a token has come; False where it has to leave off for now."""
        if self._began or not self.exchange.pieces:
            return True
        self._search = self._search or self._has_token(self.exchange)
        slice_ends_ns = monotonic_ns() + SEARCH_SLICE_NS
        for found in self._search:
            if found:
                self._began = True
                break
            if monotonic_ns() > slice_ends_ns:
                return False
        self._search = None
        return True

    def _deadlines(self) -> list[tuple[int, Ended, str]]:
        """When the present phases end, and what it means if they do."""
        limits, exchange, sent_ns = self._timeouts, self.exchange, self.exchange.sent_ns
        found: list[tuple[int, Ended, str]] = [
            _limit(sent_ns, limits.request_s, "no end", "request"),
        ]
        moved_ns = self._latest_move_ns()
        if self._patience_s is not None:
            at_ns = moved_ns + round(self._patience_s * 1e9)
            found.append((at_ns, "abandoned", f"nothing arrived for {self._patience_s:g} s"))
        if not exchange.headers_ns:
            found.append(_limit(sent_ns, limits.until_headers_s, "no headers", "headers"))
        if self._began:
            found.append(_limit(moved_ns, limits.silence_s, "no event", "silence"))
        else:
            found.append(_limit(sent_ns, limits.first_token_s, "no token", "first-token"))
        return found

    def _latest_move_ns(self) -> int:
        exchange = self.exchange
        for at in range(len(exchange.pieces) - 1, self._looked_at - 1, -1):
            if not _is_quiet(exchange.pieces, at):
                self._moved_ns = exchange.stamps_ns[at]
                break
        self._looked_at = len(exchange.pieces)
        return self._moved_ns or exchange.sent_ns


def _is_quiet(pieces: Sequence[bytes], at: int) -> bool:
    """Whether a piece is only comments' or blank lines, the rest of one begun before it perhaps."""
    piece = pieces[at]
    if _line_before(pieces, at).startswith(b":"):
        _, *rest = _LINE_END.split(piece, maxsplit=1)
        piece = rest[0] if rest else b""
    return not piece.strip() or (piece[:1] == b":" and b"\ndata" not in piece)


def _line_before(pieces: Sequence[bytes], at: int) -> bytes:
    """What those before a piece hold of the line that it goes on with."""
    line = b""
    for place in range(at - 1, -1, -1):
        last = _LINE_END.split(pieces[place])[-1]
        line = last + line
        if len(last) < len(pieces[place]) or len(line) > _LONGEST_COMMENT:
            break
    return line


def _limit(from_ns: int, limit_s: float, what: str, phase: str) -> tuple[int, Ended, str]:
    told = f"{what} within {limit_s:g} s (--{phase}-timeout)"
    return from_ns + round(limit_s * 1e9), "timeout", told
