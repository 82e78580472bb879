"""Short constructors of metric families. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from palisade.base.metrics import Histogram


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def gauges(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    """One metric for each value of the label."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for each, value in values:
        family.add_metric([each], float(value))
    return family


def counters(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for each, value in values:
        family.add_metric([each], value)
    return family


def histogram(name: str, text: str, values: Histogram) -> Metric:
    family = HistogramMetricFamily(name, text)
    family.add_metric([], values.cumulative(), values.sum_s)
    return family


def histograms(name: str, text: str, label: str, values: Iterable[tuple[str, Histogram]]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=[label])
    for each, value in values:
        family.add_metric([each], value.cumulative(), value.sum_s)
    return family
