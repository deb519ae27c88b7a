"""Numbers for Prometheus: how many and how long, and nothing of what was asked or answered."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

__all__ = ["Metrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The numbers of one service."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        labels = ["method", "route", "status"]
        self._requests = Counter("dppl_requests", "Requests that were answered.", labels, registry=registry)
        self._seconds = Histogram(
            "dppl_request_seconds", "Time to an answer.", ["route"], registry=registry, buckets=_SECONDS
        )
        self.items = Counter("dppl_items", "Items that were predicted.", ["model", "kind"], registry=registry)
        self._batches = Histogram(
            "dppl_batch_items", "Items embedded together.", ["model"], registry=registry, buckets=_ITEMS
        )
        self.running = Gauge("dppl_predictions_running", "Predictions that run or wait.", registry=registry)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def embedded(self, model: str, items: int) -> None:
        """Count a batch."""
        self._batches.labels(model).observe(items)
