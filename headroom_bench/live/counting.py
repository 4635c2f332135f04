"""Tokens as a server counts them that has no tokenizer for us: by the usage of short answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headroom_bench.errors import TargetError
from headroom_bench.live.dialect import CHAT_PATH, chat_body
from headroom_bench.live.exchange import Transport
from headroom_bench.live.reading import failure, read_stream
from headroom_bench.live.tokenizer import Chat, messages_of
from headroom_bench.live.told import told_count
from headroom_bench.redaction import shortened

HOPELESS = {
    "unauthorized": "name the variable of the API key with --api-key-env VAR",
    "not_found": "is the URL right, and the model's name (--served-model NAME)?",
}
"""Failures that every request will share, and what helps."""
PATIENCE_S = 120.0
"""Longest silence of a server, which may have to load its model first."""


class UsageCounter:
    """Sends a chat, has one token answered, and reads how long the prompt was."""

    def __init__(
        self,
        transport: Transport,
        headers: Mapping[str, str],
        model: str,
        dialect: str,
        more: Mapping[str, Any],
    ) -> None:
        """`more`: the target's own fields of every request's body."""
        self._transport = transport
        self._headers = headers
        self._model = model
        self._dialect = dialect
        self._more = more

    async def chat_tokens(self, chat: Chat) -> int | None:
        """Tokens of the whole prompt, its template included; None where the server does not say.

        Raises:
            TargetError: it will answer no request of ours: it wants a key, or has no such model.
        """
        body = chat_body(messages_of(chat), 1, self._model, self._dialect, more=self._more)
        asked = json.dumps(body, separators=(",", ":")).encode()
        exchange = await self._transport.exchange(
            CHAT_PATH, self._headers, asked, patience_s=PATIENCE_S
        )
        *_, reading = read_stream(exchange)
        wrong = failure(exchange, reading)
        if wrong is not None and wrong[0] in HOPELESS:
            told = shortened(wrong[1], 300)
            raise TargetError(f"the server will answer nobody: {told}; {HOPELESS[wrong[0]]}")
        return told_count(reading.usage, "prompt_tokens") or None
