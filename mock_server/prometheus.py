"""Prometheus text: one line a sample, and histograms."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping


class Histogram:
    """Counts of values up to each bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def lines(self, name: str, labels: Mapping[str, str]) -> Iterable[str]:
        so_far = 0
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            so_far += count
            shown = "+Inf" if bound is None else str(bound)
            yield line(f"{name}_bucket", {"le": shown, **labels}, so_far)
        yield line(f"{name}_count", labels, so_far)
        yield line(f"{name}_sum", labels, self._sum)


def line(name: str, labels: Mapping[str, str], value: float) -> str:
    """Labels in the order of their names, as prometheus-client writes them."""
    told = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(labels.items()))
    return f"{name}{{{told}}} {float(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
