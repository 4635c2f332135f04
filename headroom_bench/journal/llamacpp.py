"""The timing journal of `llama-server`: builds that print one complete line per value.

That is every build from b9305 on. A line is accepted only at its start, after a prefix that the
server itself writes (`M.SS.mmm.uuu L `, `L `, or none): prompts are printed at high verbosity, and
anyone can put text that looks like a timing line into a prompt.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from headroom_bench.records import JournalRecord, JournalSample

Entry = JournalRecord | JournalSample

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_COUNT = r"[0-9]{1,9}"
_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]+)?|nan(?:\([a-z]+\))?|inf)"

_LINE = re.compile(
    rf"(?:(?P<clock>{_COUNT}\.[0-9]{{2}}\.[0-9]{{3}}\.[0-9]{{3}}) )?(?:[IWED] )?"
    rf"(?:slot +\S+: id +(?P<slot>{_COUNT}) \| task +(?P<task>{_COUNT}) \| +|srv +\S+: )"
    r"(?P<text>.*)"
)
_RATE = (
    rf" = +({_NUMBER}) ms / +({_COUNT}) tokens"
    rf" \( *({_NUMBER}) ms per token, +({_NUMBER}) tokens per second\)"
)
_LAUNCH = re.compile(r"processing task, is_child = [01]")
_PROMPT = re.compile(rf"prompt eval time{_RATE}")
_EVAL = re.compile(rf"eval time{_RATE}")
_DRAFT = re.compile(rf"draft acceptance = .*\( *({_COUNT}) accepted / +({_COUNT}) generated\).*")
_SAMPLE = re.compile(
    rf"(?:n_gen|n_decoded) = +({_COUNT}), tg = +({_NUMBER}) t/s(?:, tg_3s = +({_NUMBER}) t/s)?"
)
_CACHED = re.compile(rf"cached n_tokens = ({_COUNT}), memory_seq_rm .*")
_RELEASE = re.compile(rf"stop processing: n_tokens = ({_COUNT}), truncated = ([01])")
_EMPTY = re.compile(r"empty prompt - releasing slot")
_CANCEL = re.compile(rf"cancel task, id_task = ({_COUNT})")
_ERROR = re.compile(rf"task id = ({_COUNT}), error: .*")
_START = re.compile(r"initializing \.\.\.|build_info: .*")

_CLOCK_SLACK_S = 1.0
"""Threads stamp their own lines, so the clock may step back a little within one life."""
_MIN_EVAL_MS = 1.0
"""Below this the printed rates are placeholders (0 or 1000000.00)."""


@dataclass(slots=True)
class _Task:
    """What is known so far of one task. Slot -1: it has not been given one."""

    slot: int
    task: int
    t_launch_s: float | None = None
    t_last_s: float | None = None
    prompt_tokens: int | None = None
    prompt_ms: float | None = None
    gen_tokens: int | None = None
    eval_ms: float | None = None
    rate_rule: Literal["n", "n-1"] | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    reused_tokens: int | None = None
    held_tokens: int | None = None
    truncated: bool | None = None
    timed: bool = False
    released: bool = False
    cancelled: bool = False
    failed: bool = False
    empty: bool = False

    def outcome(self) -> Literal["done", "cancelled", "error", "partial"]:
        # A dead request can still print a whole block: the cancel is honoured only after the
        # pass that was running. So the flags come before the block.
        if self.failed:
            return "error"
        if self.cancelled:
            return "cancelled"
        return "done" if self.timed and self.released else "partial"

    def cached_tokens(self) -> int | None:
        """From the server's own line, else what the slot held at the end less what was computed.

        The last token generated is never in the slot, hence `gen_tokens - 1`; a drafted end of
        text is, so there the difference is one too many. A negative difference (a shifted
        context) tells nothing.
        """
        if self.reused_tokens is not None:
            return self.reused_tokens
        if self.held_tokens is None or self.prompt_tokens is None or self.gen_tokens is None:
            return None
        cached = self.held_tokens - self.prompt_tokens - max(self.gen_tokens - 1, 0)
        return cached if cached >= 0 else None


class LlamaCppParser:
    """Fed the journal's lines in their order, gives records and in-flight samples.

    A record is keyed by (instance, slot, task), never by order: blocks of several slots may
    interleave. `instance` starts at 0 and rises when the server was started again, which shows as
    its first lines, as a task id launched a second time, or as ids and clock that both step back.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._instance = 0
        self._begin_life()

    def _begin_life(self) -> None:
        self._open: dict[tuple[int, int], _Task] = {}
        self._unplaced: dict[int, _Task] = {}
        self._seen: set[int] = set()
        """Every task of this life that had a slot or whose record is out."""
        self._clock_s = 0.0

    def feed(self, line: str, t_wall: float | None = None) -> list[Entry]:
        """Takes one line, with or without its line end, and gives what it completes.

        `t_wall` is the line's Unix time, where the source tells it. Never raises: a line that is
        not the server's own is passed over.
        """
        match = _LINE.fullmatch(_COLOUR.sub("", line).rstrip())
        if match is None:
            return []
        now_s = _clock_s(match["clock"])
        if match["task"] is None:
            out = self._server_line(match["text"], now_s)
        else:
            key = int(match["slot"]), int(match["task"])
            out = self._slot_line(key, match["text"], now_s, t_wall)
        self._clock_s = max(self._clock_s, now_s or 0.0)
        return out

    def close(self) -> list[Entry]:
        """Ends the journal: tasks still open come out, 'partial' unless cancelled or failed."""
        left = [*self._open.values(), *self._unplaced.values()]
        self._open, self._unplaced = {}, {}
        return [entry for task in left for entry in self._finish(task, None)]

    def _restart(self) -> list[Entry]:
        left = self.close()
        self._begin_life()
        self._instance += 1
        return left

    def _server_line(self, text: str, now_s: float | None) -> list[Entry]:
        if _START.fullmatch(text):
            # Several such lines open one life: only the first finds tasks of an earlier one.
            left = self._restart() if self._seen or self._unplaced else []
            self._clock_s = 0.0
            return left
        if match := _CANCEL.fullmatch(text):
            self._mark(int(match[1]), now_s, cancelled=True)
        elif match := _ERROR.fullmatch(text):
            self._mark(int(match[1]), now_s, failed=True)
        return []

    def _mark(
        self, task_id: int, now_s: float | None, *, cancelled: bool = False, failed: bool = False
    ) -> None:
        task = next((task for task in self._open.values() if task.task == task_id), None)
        if task is None:
            if task_id in self._seen:
                return  # its record is out: the client hung up after the end
            task = self._unplaced.setdefault(task_id, _Task(-1, task_id))
        task.cancelled |= cancelled
        task.failed |= failed
        task.t_last_s = now_s

    def _slot_line(
        self, key: tuple[int, int], text: str, now_s: float | None, t_wall: float | None
    ) -> list[Entry]:
        if _LAUNCH.fullmatch(text):
            return self._launch(key, now_s, t_wall)
        task = self._open.get(key)
        if task is None:
            if key[1] in self._seen:
                return []
            # Following began in the middle of this task: perhaps its cancel is all that we saw.
            task = self._unplaced.get(key[1]) or _Task(*key)
        sample = _SAMPLE.fullmatch(text)
        if not (sample or _learn(task, text)):
            return []
        self._place(task, key, now_s)
        out = self._settle_unplaced(key[1], t_wall)
        if sample:
            out.append(self._sample(key, sample, now_s, t_wall))
        if task.released:
            out += self._finish(self._open.pop(key), t_wall)
        return out

    def _launch(
        self, key: tuple[int, int], now_s: float | None, t_wall: float | None
    ) -> list[Entry]:
        out = self._restart() if self._is_new_life(key[1], now_s) else []
        # A task cancelled while its slot was being made ready is launched all the same.
        task = self._unplaced.get(key[1]) or _Task(*key)
        task.t_launch_s = now_s
        self._place(task, key, now_s)
        return out + self._settle_unplaced(key[1], t_wall)

    def _place(self, task: _Task, key: tuple[int, int], now_s: float | None) -> None:
        self._unplaced.pop(key[1], None)
        task.slot, task.t_last_s = key[0], now_s
        self._seen.add(key[1])
        self._open[key] = task

    def _is_new_life(self, task_id: int, now_s: float | None) -> bool:
        if task_id in self._seen:
            return True
        clock_back = now_s is not None and now_s < self._clock_s - _CLOCK_SLACK_S
        return clock_back and task_id < max(self._seen, default=-1)

    def _settle_unplaced(self, task_id: int, t_wall: float | None) -> list[Entry]:
        """Tasks that died in the queue: certain once the server has moved on to another task."""
        dead = [other for other in self._unplaced if other != task_id]
        return [
            entry for other in dead for entry in self._finish(self._unplaced.pop(other), t_wall)
        ]

    def _finish(self, task: _Task, t_wall: float | None) -> list[Entry]:
        self._seen.add(task.task)
        if task.empty:
            return []  # its block repeats the numbers of the slot's previous task
        record = JournalRecord(
            source=self._source,
            instance=self._instance,
            slot=task.slot,
            task=task.task,
            t_launch_s=task.t_launch_s,
            t_server_s=task.t_last_s,
            t_wall=t_wall,
            prompt_eval_tokens=task.prompt_tokens,
            cached_tokens=task.cached_tokens(),
            prompt_ms=task.prompt_ms,
            gen_tokens=task.gen_tokens,
            eval_ms=task.eval_ms,
            rate_rule=task.rate_rule,
            draft_tokens=task.draft_tokens,
            accepted_tokens=task.accepted_tokens,
            truncated=task.truncated,
            outcome=task.outcome(),
        )
        return [record]

    def _sample(
        self, key: tuple[int, int], match: re.Match[str], now_s: float | None, t_wall: float | None
    ) -> JournalSample:
        return JournalSample(
            source=self._source,
            instance=self._instance,
            slot=key[0],
            task=key[1],
            gen_tokens=int(match[1]),
            t_server_s=now_s,
            t_wall=t_wall,
            tok_s=_finite(match[2]),
            tok_s_3s=_finite(match[3]),
        )


def _learn(task: _Task, text: str) -> bool:
    """Takes into `task` what a line of its slot says; False when the line says nothing of use."""
    if match := _PROMPT.fullmatch(text):
        task.prompt_ms, task.prompt_tokens = _finite(match[1]), int(match[2])
    elif match := _EVAL.fullmatch(text):
        task.eval_ms, task.gen_tokens, task.timed = _finite(match[1]), int(match[2]), True
        task.rate_rule = _rate_rule(
            task.eval_ms, task.gen_tokens, _finite(match[3]), _finite(match[4])
        )
    elif match := _DRAFT.fullmatch(text):
        task.accepted_tokens, task.draft_tokens = int(match[1]), int(match[2])
    elif match := _CACHED.fullmatch(text):
        # The line comes again after each chunk of a long prompt: only the first tells the reuse.
        if task.reused_tokens is None:
            task.reused_tokens = int(match[1])
    elif match := _RELEASE.fullmatch(text):
        task.held_tokens, task.truncated, task.released = int(match[1]), match[2] == "1", True
    elif _EMPTY.fullmatch(text):
        task.empty = True
    else:
        return False
    return True


def _rate_rule(
    eval_ms: float | None, tokens: int, ms_per_token: float | None, tok_s: float | None
) -> Literal["n", "n-1"] | None:
    """Which divisor gives both printed rates; None when neither or both do."""
    if eval_ms is None or ms_per_token is None or tok_s is None:
        return None
    if tokens < 2 or eval_ms < _MIN_EVAL_MS:
        return None
    fits = [n for n in (tokens, tokens - 1) if _prints(eval_ms, n, ms_per_token, tok_s)]
    if len(fits) != 1:
        return None
    return "n" if fits[0] == tokens else "n-1"


def _prints(eval_ms: float, n: int, ms_per_token: float, tok_s: float) -> bool:
    """Whether `eval_ms` over `n` tokens prints as these two rates, all rounded to 0.01."""
    half = 0.005001
    rate = 1000 * n / eval_ms
    return abs(ms_per_token - eval_ms / n) <= half * (1 + 1 / n) and abs(tok_s - rate) <= half * (
        1 + rate / (eval_ms - half)
    )


_LONGEST_CLOCK = 32
"""Letters; longer ones are damage."""


def _clock_s(text: str | None) -> float | None:
    """`M.SS.mmm.uuu` in seconds; the minutes have no bound."""
    if text is None or len(text) > _LONGEST_CLOCK:
        return None
    minutes, seconds, millis, micros = (int(part) for part in text.split("."))
    return (((minutes * 60 + seconds) * 1000 + millis) * 1000 + micros) / 1e6


def _finite(text: str | None) -> float | None:
    """A number as C prints it; None for nan and inf."""
    if text is None or not text[-1].isdecimal():
        return None
    value = float(text)
    return value if math.isfinite(value) else None
