"""The memory designs in the plainest way: lists that are searched, pages that are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headroom_bench.box import BoxDesign
from headroom_bench.segments import Segment, shared_prefix_tokens

if TYPE_CHECKING:
    from plain_box import PlainRun

Text = tuple[tuple[Segment, ...], int, tuple[int, ...]]
"""Segments, how many tokens of them are in memory, checkpoints."""
NOTHING: Text = ((), 0, ())


def text_of(run: PlainRun) -> tuple[Segment, ...]:
    if not run.times:
        return run.segments
    answer = Segment("a", "assistant", "prose", run.request.answer_id, len(run.times))
    return (*run.segments, answer)


def shared(text: Text, asked: tuple[Segment, ...]) -> int:
    return min(shared_prefix_tokens(text[0], asked), text[1])


class PlainSlots:
    """Split and unified slots, parked texts, checkpoints."""

    def __init__(self, design: BoxDesign) -> None:
        self.design = design
        self.texts: dict[int, Text] = dict.fromkeys(range(design.parallel), NOTHING)
        self.taken: dict[int, PlainRun] = {}
        self.left = dict.fromkeys(range(design.parallel), -1)
        self.leaves = 0
        self.parked: list[Text] = []

    def seat(self, run: PlainRun, running: list[PlainRun]) -> bool:
        free = [i for i in self.texts if i not in self.taken]
        if not free:
            return False
        found = {i: shared(self.texts[i], run.segments) for i in free}
        index = max(free, key=lambda i: (found[i], -i))
        similar = found[index] > 0.1 * run.prompt
        if not similar:
            index = min(free, key=lambda i: (self.left[i], -i))
        text = self.texts[index]
        if self.design.host_tokens:
            text = self.swap(run, index, free, similar)
        start = self.usable(text, shared(text, run.segments), run.target - 1)
        checkpoints = tuple(at for at in text[2] if at <= start)
        self.texts[index] = (run.segments, start, checkpoints)
        self.taken[index] = run
        run.start = start
        return True

    def swap(self, run: PlainRun, index: int, free: list[int], similar: bool) -> Text:
        text = self.texts[index]
        match = shared(text, run.segments)
        if not (similar and match >= 0.5 * text[1]):
            run.moved += self.park(text)
            better = self.fetch(run.segments, text)
            if better is not None:
                run.moved += better[1]
                text = better
        for other in sorted(i for i in free if i != index):
            run.moved += self.park(self.texts[other])
            if self.design.pool_tokens is not None:
                self.texts[other] = NOTHING
        return text

    def related(self, asked: tuple[Segment, ...]) -> list[Text]:
        """For each beginning of `asked` the shortest, then oldest, text that has it."""
        found: list[Text] = []
        for depth in range(len(asked), 0, -1):
            for whole in (True, False):
                same = [text for text in self.parked if begins(text[0], asked, depth, whole)]
                if same:
                    text = min(same, key=lambda text: text[1])
                    if not any(text is other for other in found):
                        found.append(text)
        return found

    def park(self, text: Text) -> int:
        if not text[1]:
            return 0
        for other in self.related(text[0]):
            match = min(shared(other, text[0]), text[1])
            if match == text[1]:
                return 0
            if match == other[1]:
                self.parked = [kept for kept in self.parked if kept is not other]
        self.parked.append(text)
        while sum(kept[1] for kept in self.parked) > self.design.host_tokens:
            if len(self.parked) == 1:
                break
            self.parked.pop(0)
        return text[1]

    def fetch(self, asked: tuple[Segment, ...], text: Text) -> Text | None:
        most = shared(text, asked)
        kept = most / text[1] if text[1] else -1.0
        best = None
        for other in self.related(asked):
            match = shared(other, asked)
            if match / other[1] >= 0.25 and match / other[1] > kept and match > most:
                best, most, kept = other, match, match / other[1]
        self.parked = [text for text in self.parked if text is not best]
        return best

    def usable(self, text: Text, match: int, most: int) -> int:
        if not self.design.prefix_cache:
            return 0
        match = min(match, most)
        if self.design.rewind == "any" or match == text[1]:
            return match
        if self.design.rewind == "extend":
            return 0
        return max((at for at in text[2] if at <= match), default=0)

    def fits(self, running: list[PlainRun], writes: dict[int, int]) -> bool:
        pool = self.design.pool_tokens
        return pool is None or sum(r.held for r in running) + sum(writes.values()) <= pool

    def settle(self, running: list[PlainRun]) -> None:
        pool = self.design.pool_tokens
        for index in sorted(self.texts):
            idle = sum(self.texts[i][1] for i in self.texts if i not in self.taken)
            if pool is None or sum(run.held for run in running) + idle <= pool:
                return
            if index not in self.taken:
                self.texts[index] = NOTHING

    def index_of(self, run: PlainRun) -> int:
        return next(i for i, taken in self.taken.items() if taken is run)

    def known(self, run: PlainRun) -> None:
        if self.design.rewind != "checkpoints":
            return
        index = self.index_of(run)
        segments, valid, kept = self.texts[index]
        starts = [sum(s.tokens for s in segments[:i]) for i in range(len(segments))]
        users = [
            start
            for at, (start, segment) in enumerate(zip(starts, segments, strict=True))
            if segment.role == "user"
            and start >= run.start
            and not (at and segments[at - 1].role == "user")
        ]
        for at in (*users, max(run.prompt - 4, 0)):
            if at > 0 and (not kept or at - kept[-1] >= 256):
                kept = (*kept, at)
        self.texts[index] = (segments, valid, kept[-32:])

    def release(self, run: PlainRun, running: list[PlainRun], keep: bool) -> None:
        index = self.index_of(run)
        text: Text = (text_of(run), run.held, self.texts[index][2])
        self.texts[index] = text if keep and self.design.prefix_cache else NOTHING
        del self.taken[index]
        self.left[index] = self.leaves
        self.leaves += 1


def begins(
    segments: tuple[Segment, ...], asked: tuple[Segment, ...], depth: int, whole: bool
) -> bool:
    """Whether `segments` begins with the first `depth` of `asked`, the last perhaps only in its
    first 16 tokens."""
    if len(segments) < depth:
        return False
    ours = [(s.content_id, s.tokens) for s in segments[:depth]]
    theirs = [(s.content_id, s.tokens) for s in asked[:depth]]
    if whole:
        return ours == theirs
    mine, other = segments[depth - 1].blocks, asked[depth - 1].blocks
    return ours[:-1] == theirs[:-1] and mine[:1] == other[:1] != ()


class PlainDynamic:
    """A list of whole caches."""

    def __init__(self, design: BoxDesign) -> None:
        self.design = design
        self.caches: list[Text] = []

    def seat(self, run: PlainRun, running: list[PlainRun]) -> bool:
        if len(running) == self.design.parallel:
            return False
        best, run.start = None, 0
        for text in self.caches:
            match = min(shared(text, run.segments), run.target - 1)
            usable = self.design.rewind == "any" or match == text[1]
            if usable and match > run.start:
                best, run.start = text, match
        if best is not None:
            self.caches = [text for text in self.caches if text is not best]
            if run.start < best[1]:
                self.caches.append(best)
        return True

    def fits(self, running: list[PlainRun], writes: dict[int, int]) -> bool:
        pool = self.design.pool_tokens
        return pool is None or sum(r.held for r in running) + sum(writes.values()) <= pool

    def settle(self, running: list[PlainRun]) -> None:
        pool = self.design.pool_tokens
        while pool is not None and self.caches:
            if sum(r.held for r in running) + sum(text[1] for text in self.caches) <= pool:
                return
            self.caches.pop(0)

    def known(self, run: PlainRun) -> None: ...

    def release(self, run: PlainRun, running: list[PlainRun], keep: bool) -> None:
        if keep and self.design.prefix_cache and run.held:
            self.caches.append((text_of(run), run.held, ()))
            del self.caches[: -self.design.cached_prompts]


Key = tuple[tuple[Any, ...], int]
"""The pieces of text up to the one in which a page ends, and the page's number."""


class PlainPages:
    """A set of pages, each known by all the text before its end."""

    def __init__(self, design: BoxDesign) -> None:
        self.design = design
        self.page = design.page_tokens
        self.limit = (design.pool_tokens or 0) // self.page
        self.cached: dict[Key, int] = {}  # by when it was last used
        self.locked: dict[int, set[Key]] = {}
        self.base: dict[int, int] = {}
        self.releases = 0

    def pieces(self, run: PlainRun) -> list[tuple[Any, int]]:
        pieces: list[tuple[Any, int]] = []
        for segment in text_of(run):
            blocks = segment.blocks[: segment.tokens // 16]
            pieces += [(block, 16) for block in blocks]
            rest = segment.tokens - 16 * len(blocks)
            pieces += [((segment.content_id, segment.tokens), rest)] if rest else []
        return pieces

    def keys(self, run: PlainRun, tokens: int) -> list[Key]:
        """The whole pages of the first `tokens` tokens of what `run` has."""
        pieces = self.pieces(run)
        ends = [sum(size for _, size in pieces[: i + 1]) for i in range(len(pieces))]
        keys = []
        for number in range(tokens // self.page):
            last = next(i for i, end in enumerate(ends) if end >= (number + 1) * self.page)
            keys.append((tuple(name for name, _ in pieces[: last + 1]), number))
        return keys

    def own(self, run: PlainRun, writes: int = 0) -> int:
        """Pages that `run` holds beside those in `cached`."""
        if self.design.reserve_answer:
            tokens = run.prompt + run.wanted
        else:
            tokens = run.target if run.reading else run.held + writes
        return -(-tokens // self.page) - self.base[id(run)]

    def in_use(self, running: list[PlainRun], writes: dict[int, int] | None = None) -> int:
        locked: set[Key] = set().union(*self.locked.values())
        return len(locked) + sum(self.own(r, (writes or {}).get(id(r), 0)) for r in running)

    def seat(self, run: PlainRun, running: list[PlainRun]) -> bool:
        if len(running) == self.design.parallel:
            return False
        found: list[Key] = []
        if self.design.prefix_cache:
            for key in self.keys(run, run.target):
                if key not in self.cached:
                    break
                found.append(key)
        run.start = min(len(found) * self.page, (run.target - 1) // self.page * self.page)
        run.reading = True
        self.locked[id(run)], self.base[id(run)] = set(found), run.start // self.page
        if self.in_use([*running, run]) > self.limit:
            self.locked[id(run)] = set()
            if running:
                del self.locked[id(run)], self.base[id(run)]
                return False
            run.start = self.base[id(run)] = 0
        self.settle([*running, run])
        return True

    def fits(self, running: list[PlainRun], writes: dict[int, int]) -> bool:
        decodes = {id(run): writes[id(run)] for run in running if id(run) in writes}
        if all(run.reading for run in running if id(run) in writes):
            return True
        return self.in_use(running, decodes) <= self.limit

    def settle(self, running: list[PlainRun]) -> None:
        while len(self.cached) + sum(self.own(run) for run in running) > self.limit:
            locked: set[Key] = set().union(*self.locked.values())
            leaves = [
                key
                for key in self.cached
                if key not in locked and not any(extends(other, key) for other in self.cached)
            ]
            del self.cached[min(leaves, key=lambda key: self.cached[key])]

    def hold(self, run: PlainRun) -> None:
        if not self.design.prefix_cache:
            return
        names: tuple[Any, ...]
        keys = self.keys(run, run.held)
        self.rename(run)
        for key in keys:
            self.cached.setdefault(key, 0)
        # Whose piece of text is used up to somewhere, uses what is cached of all of it.
        names, end = (), 0
        for name, size in self.pieces(run):
            if end < run.held:
                names = (*names, name)
            end += size
        self.locked[id(run)] |= set(keys) | {key for key in self.cached if key[0] == names}
        self.base[id(run)] = len(keys)

    def rename(self, run: PlainRun) -> None:
        """What was kept of a shorter, unfinished answer is the beginning of this one."""

        def longer(key: Key) -> Key:
            name = key[0][-1]
            if isinstance(name, tuple) and name[0] == run.request.answer_id:
                return ((*key[0][:-1], (name[0], len(run.times))), key[1])
            return key

        locked = self.locked[id(run)]
        for key in [key for key in locked if longer(key) != key]:
            self.cached[longer(key)] = self.cached.pop(key)
        self.locked[id(run)] = {longer(key) for key in locked}

    def known(self, run: PlainRun) -> None:
        self.hold(run)

    def release(self, run: PlainRun, running: list[PlainRun], keep: bool) -> None:
        if keep:
            self.hold(run)
        self.releases += 1
        mine = self.locked.pop(id(run))
        del self.base[id(run)]
        still: set[Key] = set().union(*self.locked.values())
        for key in mine - still:
            self.cached[key] = self.releases


def extends(longer: Key, key: Key) -> bool:
    return longer[1] > key[1] and longer[0][: len(key[0])] == key[0]
