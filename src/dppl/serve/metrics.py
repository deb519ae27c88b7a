"""Numbers for Prometheus: how many and how long, and nothing of what was asked or answered."""

from __future__ import annotations

from typing import Any

from dppl._optional import optional

__all__ = ["Metrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The numbers of one service."""

    def __init__(self) -> None:
        self._client = client = optional("prometheus_client", "prometheus-client", "serve")
        self._registry = registry = client.CollectorRegistry()
        client.ProcessCollector(registry=registry)
        labels = ["method", "route", "status"]
        self._requests = client.Counter("dppl_requests", "Requests that were answered.", labels, registry=registry)
        self._seconds = client.Histogram(
            "dppl_request_seconds", "Time to an answer.", ["route"], registry=registry, buckets=_SECONDS
        )
        self._items = client.Counter("dppl_items", "Items that were predicted.", ["model", "kind"], registry=registry)
        self._batches = client.Histogram(
            "dppl_batch_items", "Items embedded together.", ["model"], registry=registry, buckets=_ITEMS
        )
        self.running = client.Gauge("dppl_predictions_running", "Predictions that run or wait.", registry=registry)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def predicted(self, model: str, kind: str, items: int) -> None:
        """Count items."""
        self._items.labels(model, kind).inc(items)

    def embedded(self, model: str, items: int) -> None:
        """Count a batch."""
        self._batches.labels(model).observe(items)

    def page(self) -> tuple[bytes, str]:
        """Return all numbers, and the type of the page."""
        content: Any = self._client.generate_latest(self._registry)
        return content, self._client.CONTENT_TYPE_LATEST
