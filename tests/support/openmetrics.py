"""The official parser of OpenMetrics, with types."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser

families_of: Callable[[str], Iterable[Metric]] = parser.text_string_to_metric_families
"""The families in a text. It raises ValueError for whatever OpenMetrics does not allow."""
