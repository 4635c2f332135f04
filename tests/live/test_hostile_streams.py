"""Answers made to cost much are read in time that grows with their size, giving way to others."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_server import DONE, delta, event, finish

from headroom_bench.live import unpacking
from headroom_bench.live.exchange import Exchange
from headroom_bench.live.intake import Held, Intake, any_byte
from headroom_bench.live.reading import Reading, read_stream
from headroom_bench.live.timeouts import Timeouts


def exchange(pieces: Sequence[bytes], **headers: str) -> Exchange:
    told = {"content-type": "text/event-stream", **headers}
    found = Exchange(status=200, headers=told, headers_ns=1, ended="too_large")
    found.pieces, found.stamps_ns = list(pieces), list(range(1, len(pieces) + 1))
    return found


def read(pieces: Sequence[bytes], **headers: str) -> tuple[Reading, int]:
    """The reading, and how often the reader could have given way."""
    yields = 0
    reading = Reading()
    for reading in read_stream(exchange(pieces, **headers)):  # noqa: B007
        yields += 1
    return reading, yields


def test_an_endless_line_is_joined_once() -> None:
    """Joined at every piece it would be copied a hundred thousand times: for hours."""
    reading, _ = read([b"data: ", *[b"x" * 128] * 2**17])
    assert reading.nonsense is not None
    assert reading.events == 1


@pytest.mark.parametrize("unit", [b"x", b":\n\n", b"data: x\n", b"\n" * 5_000])
def test_what_holds_no_event_can_be_left_for_others(unit: bytes) -> None:
    _, yields = read([unit] * 20_000 if len(unit) < 10 else [unit] * 20)
    assert yields >= 90


def test_a_large_piece_without_a_line_end_is_as_much_work_as_many() -> None:
    """A packed bomb comes in 64 KiB at a time: 200 of them were 60 ms without a pause."""
    _, yields = read([b"x" * 2**16] * 200)
    assert yields >= 25


def test_an_event_too_large_to_be_one_is_not_parsed() -> None:
    huge = b'data: {"choices":[{"delta":{"content":"' + b"x" * 2**23 + b'"}}]}\n\n'
    reading, _ = read([huge])
    assert reading.nonsense is not None
    assert not reading.stamps_ns


def test_nesting_without_end() -> None:
    reading, _ = read([b"data: " + b"[" * 10**6 + b"\n\n"])
    assert reading.nonsense is not None


def test_a_packed_body_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "LARGEST_UNPACKED_BYTES", 2**20)
    bomb = zlib.compress(b"data: x\n\n" * 2**20)
    pieces = [bomb[at : at + 256] for at in range(0, len(bomb), 256)]
    got = 0

    def unpack() -> None:
        nonlocal got
        for _, piece in unpacking.unpacked(enumerate(pieces), "deflate"):
            got += len(piece)

    with pytest.raises(unpacking.PackingError, match="more than 1,048,576 bytes are packed in it"):
        unpack()
    assert 2**19 < got <= 2**20


@given(st.binary(max_size=300), st.integers(1, 4_000), st.integers(1, 64), st.integers(1, 900))
def test_a_packed_body_is_unpacked_whole_and_in_pieces(
    unit: bytes, times: int, cut: int, at_once: int
) -> None:
    packed = zlib.compress(unit * times)
    pieces = [packed[at : at + cut] for at in range(0, len(packed), cut)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpacking, "UNPACKED_AT_ONCE_BYTES", max(at_once, len(unit) * times // 100))
        found = [piece for _, piece in unpacking.unpacked(enumerate(pieces), "deflate")]
        assert max(map(len, found), default=0) <= unpacking.UNPACKED_AT_ONCE_BYTES
    assert b"".join(found) == unit * times


@given(st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=6), st.data())
def test_members_padding_and_what_follows_them_in_any_pieces(
    texts: list[bytes], data: st.DataObject
) -> None:
    padding = st.integers(0, 5).map(lambda many: b"\0" * many)
    body = b"".join(gzip.compress(text) + data.draw(padding) for text in texts)
    body += data.draw(st.sampled_from([b"", b"?", b"no member", b"\x1f"]))
    cut = data.draw(st.integers(1, len(body)))
    pieces = [body[at : at + cut] for at in range(0, len(body), cut)]
    found = [piece for _, piece in unpacking.unpacked(enumerate(pieces), "gzip")]
    assert b"".join(found) == b"".join(texts)


def test_padding_is_not_kept() -> None:
    unpacker = unpacking.Unpacker("gzip")
    for packed in (gzip.compress(b"x"), *[b"\0" * 2**14] * 1000):
        list(unpacker.feed(packed))
    assert len(unpacker._head) < 2


def packed_events(events: Sequence[bytes]) -> list[bytes]:
    """Each packed and flushed by itself, as a proxy does it; and what ends the body."""
    packer = zlib.compressobj(wbits=31)
    each = [packer.compress(one) + packer.flush(zlib.Z_SYNC_FLUSH) for one in events]
    return [*each, packer.flush()]


TOLD = [
    event({**delta(content=" w"), "usage": {"completion_tokens": 2 * n}}) for n in range(1, 251)
]


def test_a_packing_that_breaks_off_loses_nothing_before_it() -> None:
    """Neither texts, of which many are read at one go, nor the latest count."""
    pieces = packed_events(TOLD)
    reading, _ = read([*pieces[:-1], b"\xff" * 20], **{"content-encoding": "gzip"})
    assert len(reading.stamps_ns) == 250
    assert reading.token_counts[-1] == 500
    assert reading.usage == {"completion_tokens": 500}
    assert "no gzip" in str(reading.nonsense)


def test_a_wrong_checksum_after_the_end_harms_nobody() -> None:
    *pieces, tail = packed_events([*TOLD, event(finish()), DONE])
    reading, _ = read([*pieces, tail[:-8] + b"\0" * 8], **{"content-encoding": "gzip"})
    assert (len(reading.stamps_ns), reading.done_mark, reading.nonsense) == (250, True, None)


def test_unpacking_gives_way() -> None:
    """Between two steps no more is unpacked than can be read in a millisecond or two."""
    bomb = zlib.compress(b":\n" * 2**22)
    at_once = []
    original = unpacking.Unpacker.feed
    with pytest.MonkeyPatch.context() as patch:

        def feed(self: unpacking.Unpacker, packed: bytes) -> Iterator[bytes]:
            for piece in original(self, packed):
                at_once[-1] += len(piece)
                yield piece

        patch.setattr(unpacking.Unpacker, "feed", feed)
        steps = read_stream(exchange([bomb], **{"content-encoding": "deflate"}))
        at_once.append(0)
        for _ in steps:
            at_once.append(0)
    assert sum(at_once) == 2**23
    assert max(at_once) <= unpacking.UNPACKED_AT_ONCE_BYTES


def test_empty_members_are_bounded_wherever_they_stand() -> None:
    unpacker = unpacking.Unpacker("gzip")
    body = gzip.compress(b"x") + gzip.compress(b"") * 2_000
    with pytest.raises(unpacking.PackingError, match="more than 1,000 empty members"):
        list(unpacker.feed(body))


async def test_tiny_members_are_not_searched_without_end() -> None:
    """Each is a byte, and twenty packed: some microseconds to begin it, in the event loop."""
    found = exchange([], **{"content-encoding": "gzip"})
    intake = Intake(found, lambda: None, Timeouts(), None, any_byte, Held())
    begun = 0
    original = unpacking.Unpacker._begun
    with pytest.MonkeyPatch.context() as patch:

        def counted(self: unpacking.Unpacker, packed: bytes) -> bytes:
            nonlocal begun
            begun += 1
            return original(self, packed)

        patch.setattr(unpacking.Unpacker, "_begun", counted)
        for _ in range(20):
            body = gzip.compress(b"x") * 1_000
            intake.take_raw(len(body))
            intake.on_body(body)
    intake.finish("interrupted")
    assert begun <= 5_000
