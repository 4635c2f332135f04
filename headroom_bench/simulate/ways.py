"""The way between each person and the box: a constant delay, or a link with its radio.

What a shared radio carried is told by the box's own count of tokens: between two changes every
stream gets the same tokens a second, so a radio's frames are its streams' share of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headroom_bench.box import Box
from headroom_bench.crowd.world import Request
from headroom_bench.network import (
    EVENT_BYTES,
    MORE_TOKEN_BYTES,
    REQUEST_BYTES,
    TOKEN_BYTES,
    Link,
    Radio,
)

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Path:
    """The way to the box and back: a constant one-way delay each."""

    one_way_s: float = 0.0


@dataclass(slots=True)
class _Medium:
    """A shared link's radio, and how many answers stream over it now."""

    radio: Radio
    frame_s: float
    streams: int = 0


class Ways:
    """Everybody's way. `links` are by persona; who has none has the constant delay of `path`.

    `event_tokens`: tokens of one streamed event, the first token always being one of its own.
    """

    def __init__(
        self, box: Box, path: Path, links: Mapping[str, Link], event_tokens: int = 1
    ) -> None:
        self._box = box
        self._one_way_s = path.one_way_s
        self._links = dict(links)
        self._event_tokens = event_tokens
        event_bytes = EVENT_BYTES + MORE_TOKEN_BYTES * (event_tokens - 1)
        self._events = {name: link.events(event_bytes) for name, link in self._links.items()}
        shared = {link.name: link for link in self._links.values() if link.shared}
        self._media = {
            name: _Medium(Radio(), link.frame_s(event_bytes)) for name, link in shared.items()
        }
        self.shared = bool(self._media)
        """Some share a radio, so beginnings and ends of streams must be told."""
        self._streams = 0
        self._begun: dict[str, float] = {}  # the longest streaming first
        self._tokens = 0
        self._accounted_s = 0.0
        self._connected: set[tuple[str, int]] = set()

    def connect_s(self, request: Request) -> float | None:
        """Opening the person's connection, which is kept for later requests; None without a link,
        where it is not known."""
        link = self._links.get(request.persona)
        person = (request.persona, request.user)
        if link is None:
            return None
        if person in self._connected:
            return 0.0
        self._connected.add(person)
        return link.connect_s()

    def shares(self, request: Request) -> bool:
        """Whether the person's frames wait for others'."""
        link = self._links.get(request.persona)
        return link is not None and link.shared

    def up_s(self, request: Request, prompt_tokens: int) -> float:
        """From sending a request now until the box has it. `account` first where it `shares`."""
        link = self._links.get(request.persona)
        if link is None:
            return self._one_way_s
        size = REQUEST_BYTES + round(prompt_tokens * TOKEN_BYTES)
        if _by_gateway(request, link):
            size = round(request.segments[-1].tokens * TOKEN_BYTES)
        if not link.shared:
            return link.upload_s(size, request.request_id)
        on_air_s = link.frame_s(size)
        seconds = link.upload_s(size, request.request_id, on_air_s)
        return seconds + self._media[link.name].radio.burst(on_air_s)

    def down_s(self, request: Request) -> float:
        """For a message that carries no token: an error."""
        link = self._links.get(request.persona)
        return self._one_way_s if link is None else link.one_way_s

    def stream(self, request: Request, change: int, at: float) -> None:
        """One answer more (or less, -1) streams to the person from now on."""
        if not self.shared:
            return
        self.account(at)
        self._streams += change
        if change > 0:
            self._begun[request.request_id] = at
            oldest = next(iter(self._begun.values()))
            for medium in self._media.values():
                medium.radio.forget_before(oldest)
        else:
            self._begun.pop(request.request_id, None)
        link = self._links.get(request.persona)
        if link is not None and link.shared and not _by_gateway(request, link):
            medium = self._media[link.name]
            medium.streams += change
            if change > 0:
                medium.radio.burst(medium.frame_s)

    def down(self, request: Request, sent: Times, *, whole: bool) -> Times:
        """When tokens that the box gave at `sent` (up to now) are with the person. Without `whole`
        more are to come, and those that wait for their event are left out. `account` first where it
        `shares`."""
        link = self._links.get(request.persona)
        if link is None or not len(sent):
            return sent + self._one_way_s
        if _by_gateway(request, link):
            return self._down_in_one(request, link, sent) if whole else sent[:0]
        at, place = sent, None
        if self._event_tokens > 1:
            ends = _event_ends(len(sent), self._event_tokens, whole=whole)
            events, place = np.unique(ends, return_inverse=True)
            at = sent[events]
        if link.shared:
            at = at + self._media[link.name].radio.waits(at)
            np.maximum.accumulate(at, out=at)
        arrived = self._events[request.persona].arrivals(at, request.request_id)
        return arrived if place is None else arrived[place]

    def _down_in_one(self, request: Request, link: Link, sent: Times) -> Times:
        """The visible text as one message, once it is complete."""
        size = max(1, round((len(sent) - request.reasoning_tokens) * TOKEN_BYTES))
        at = sent[-1:]
        if link.shared:
            at = at + self._media[link.name].radio.burst(link.frame_s(size))
        arrived = link.arrivals(at, size, request.request_id)
        return np.full(len(sent), arrived[0])

    def offered_s(self) -> dict[str, float]:
        """Airtime that each shared link was given to carry so far, by name, rests included."""
        return {name: medium.radio.offered_s for name, medium in self._media.items()}

    def account(self, now: float) -> None:
        """Tells the radios what they carried since the last change. All that happens in the box
        before `now` must have been heard of."""
        if now <= self._accounted_s:
            return
        self._accounted_s = now
        tokens = self._box.decode_tokens_by(now)
        each = (tokens - self._tokens) / self._streams if self._streams else 0.0
        self._tokens = tokens
        for medium in self._media.values():
            together = medium.streams / self._event_tokens
            medium.radio.carry(now, each * together, medium.frame_s, together)


def _by_gateway(request: Request, link: Link) -> bool:
    """Whether a gateway beside the box speaks for the person, as messengers over LoRa do: over a
    radio without TCP there is no HTTP either. Up goes what was said last, down goes the whole text.
    A device that wants to stream there gets its events one by one, which no such radio bears.
    """
    return link.resend == "application" and request.device.whole


def _event_ends(count: int, tokens: int, *, whole: bool) -> NDArray[np.intp]:
    """For each token the last one of its event; the last event may be short. Shape (<= count,)."""
    ends = -(-np.arange(count) // tokens) * tokens
    return np.minimum(ends, count - 1) if whole else ends[ends < count]
