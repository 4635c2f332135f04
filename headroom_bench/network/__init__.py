"""The way between a client and the server: round trips, handshakes, loss, shared radios."""

from headroom_bench.network.airtime import lora_airtime_s
from headroom_bench.network.link import (
    EVENT_BYTES,
    MORE_TOKEN_BYTES,
    REQUEST_BYTES,
    TOKEN_BYTES,
    Link,
)
from headroom_bench.network.named import link_named, link_of
from headroom_bench.network.radio import Radio

__all__ = [
    "EVENT_BYTES",
    "MORE_TOKEN_BYTES",
    "REQUEST_BYTES",
    "TOKEN_BYTES",
    "Link",
    "Radio",
    "link_named",
    "link_of",
    "lora_airtime_s",
]
