"""`run --prometheus`: the run's metrics on /metrics, updated as requests end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from headroom_bench.errors import UserError
from headroom_bench.measures import Moments, quantile
from headroom_bench.records import RequestRecord

disable_created_metrics()  # type: ignore[no-untyped-call]  # series that nobody plots

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300)
_GAPS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 2, 5)
_RATES = (1, 2, 5, 10, 15, 20, 30, 40, 60, 80, 100, 150, 200, 300, 500, 1000)

COMPARED = {"ttft_p50": "ttft_s", "decode_p50": "decode_tok_s", "e2e_p50": "e2e_s"}
"""What `headroom_predicted_ratio` compares: its `metric` label and the record's column."""


class Named(Protocol):
    """What is known of a request when it is sent."""

    @property
    def persona(self) -> str: ...


class RunExporter:
    """Serves the run's metrics from `start` to `stop`; an observer of the live world.

    `predicted` are the predicted medians by metric name, for `headroom_predicted_ratio`.
    """

    def __init__(self, target: str, predicted: Mapping[str, float]) -> None:
        self._target = target
        self._registry = CollectorRegistry()
        labels = ["persona", "target"]

        def histogram(name: str, about: str, buckets: Iterable[float]) -> Histogram:
            edges = tuple(buckets)
            return Histogram(name, about, labels, registry=self._registry, buckets=edges)

        self._requests = Counter(
            "headroom_requests",
            "Requests that ended, by outcome (ok or the kind of failure).",
            [*labels, "outcome"],
            registry=self._registry,
        )
        self._ttft = histogram("headroom_ttft_seconds", "Time to the first token.", _SECONDS)
        self._ttfv = histogram(
            "headroom_ttfv_seconds", "Time to what the persona's device first shows.", _SECONDS
        )
        self._gaps = _Gaps(target)
        self._registry.register(self._gaps)
        self._e2e = histogram("headroom_e2e_seconds", "From sending to the answer's end.", _SECONDS)
        self._decode = histogram(
            "headroom_decode_tokens_per_second", "Decode rate of single answers.", _RATES
        )
        self._prompt = Counter(
            "headroom_prompt_tokens", "Prompt tokens, cached ones included.", labels,
            registry=self._registry,
        )  # fmt: skip
        self._completion = Counter(
            "headroom_completion_tokens", "Generated tokens.", labels, registry=self._registry
        )
        self._in_flight = Gauge(
            "headroom_in_flight", "Requests in flight.", labels, registry=self._registry
        )
        self._lag = Gauge(
            "headroom_harness_lag_seconds",
            "Worst lateness of the harness's own event loop during the latest request.",
            registry=self._registry,
        )
        self._ratios = _Ratios(predicted)
        self._registry.register(self._ratios)
        self._stop: Callable[[], None] | None = None

    def start(self, host: str, port: int) -> int:
        """Serves on `host`:`port` (0: any free one); returns the port.

        Raises:
            UserError: the address is taken or not ours.
        """
        try:
            server, thread = start_http_server(port, addr=host, registry=self._registry)
        except OSError as why:
            raise UserError(
                f"--prometheus {host}:{port} cannot be opened: {why.strerror}"
            ) from None

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._stop = stop
        return int(server.server_port)

    def stop(self) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None

    def on_sent(self, request: Named) -> None:
        self._in_flight.labels(request.persona, self._target).inc()

    def on_record(self, record: RequestRecord, event_times_s: Moments) -> None:
        who = (record.persona, self._target)
        if record.sent_s is not None:
            self._in_flight.labels(*who).dec()
        outcome = "ok" if record.ok else record.error_kind or "unknown"
        self._requests.labels(*who, outcome).inc()
        self._prompt.labels(*who).inc(record.prompt_tokens or 0)
        self._completion.labels(*who).inc(record.completion_tokens or 0)
        if record.harness_lag_ms is not None:
            self._lag.set(record.harness_lag_ms / 1e3)
        if not record.ok or not record.valid:
            return
        for histogram, value in (
            (self._ttft, record.ttft_s),
            (self._ttfv, record.ttfv_s),
            (self._e2e, record.e2e_s),
            (self._decode, record.decode_tok_s),
        ):
            if value is not None:
                histogram.labels(*who).observe(value)
        self._gaps.add(record.persona, event_times_s)
        self._ratios.add(record)


class _Gaps(Collector):
    """`headroom_inter_token_seconds`. Takes an answer's gaps all at once: one after another, those
    of a long answer would hold up the event loop that measures the others."""

    _EDGES = np.array(_GAPS)

    def __init__(self, target: str) -> None:
        self._target = target
        self._counts: dict[str, NDArray[np.int64]] = {}
        self._sums_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, persona: str, event_times_s: Moments) -> None:
        gaps_s = np.diff(np.asarray(event_times_s, dtype=float))
        places = np.searchsorted(self._EDGES, gaps_s)  # the first edge that is not below it
        counts = np.bincount(places, minlength=len(self._EDGES) + 1)
        with self._lock:
            self._counts[persona] = self._counts.get(persona, 0) + counts
            self._sums_s[persona] = self._sums_s.get(persona, 0.0) + float(gaps_s.sum())

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(
            "headroom_inter_token_seconds",
            "Gaps between token-bearing events.",
            labels=["persona", "target"],
        )
        edges = [*map(floatToGoString, _GAPS), "+Inf"]
        with self._lock:
            for persona, counts in self._counts.items():
                buckets = list(zip(edges, map(float, np.cumsum(counts)), strict=True))
                family.add_metric([persona, self._target], buckets, self._sums_s[persona])
        yield family


class _Ratios(Collector):
    """`headroom_predicted_ratio`: measured median so far over the predicted one."""

    def __init__(self, predicted: Mapping[str, float]) -> None:
        self._predicted = {name: predicted[name] for name in COMPARED if predicted.get(name)}
        self._measured: dict[str, list[float]] = {name: [] for name in self._predicted}
        self._lock = threading.Lock()

    def add(self, record: RequestRecord) -> None:
        with self._lock:
            for name, values in self._measured.items():
                value = getattr(record, COMPARED[name])
                if value is not None:
                    values.append(value)

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "headroom_predicted_ratio",
            "Measured median so far divided by the predicted median.",
            labels=["metric"],
        )
        with self._lock:
            for name, values in self._measured.items():
                if values:
                    median = quantile(sorted(values), 0.5)
                    family.add_metric([name], median / self._predicted[name])
        yield family
