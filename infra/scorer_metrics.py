"""What the HTTP scorer tells Prometheus: counts of its own, and how it stands to the registry at a scrape."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from infra.served_champion import ChampionFollower

SECONDS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class ScorerMetrics:
    """The counters that requests move, in a registry without anything of other libraries."""

    def __init__(self, follower: ChampionFollower, model: str) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "floodmark_serving_requests",
            "Requests for scores, by status.",
            ["status"],
            registry=self.registry,
        )
        self.rows = Counter("floodmark_serving_rows", "Rows that were scored.", registry=self.registry)
        self.alerts = Counter(
            "floodmark_serving_alerts", "Rows that scored above the flood mark.", registry=self.registry
        )
        self.seconds = Histogram(
            "floodmark_serving_request_duration_seconds",
            "From the first byte of a request for scores to its answer.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.registry.register(FollowerCollector(follower, model))


class FollowerCollector(Collector):
    """Reads the follower when it is scraped; what is not known is absent."""

    def __init__(self, follower: ChampionFollower, model: str) -> None:
        self.follower, self.model = follower, model

    def collect(self) -> Iterator[Metric]:
        """Yield what serves, whether it follows the alias, and failures to load."""
        state, age = self.follower.state, self.follower.confirmed_seconds_ago()
        if state.served is not None:
            info = GaugeMetricFamily(
                "floodmark_serving_model_info", "The version that serves.", labels=["model", "version"]
            )
            info.add_metric([self.model, state.served.version], 1)
            yield info
            threshold = state.served.scorer.threshold.value
            yield GaugeMetricFamily("floodmark_serving_threshold", "Its flood mark.", value=threshold)
        yield GaugeMetricFamily(
            "floodmark_serving_following",
            "Whether what serves is what the alias names.",
            value=float(self.follower.trouble() is None),
        )
        if age is not None:
            yield GaugeMetricFamily(
                "floodmark_serving_alias_confirmed_age_seconds",
                "Seconds since the alias last named what serves.",
                value=age,
            )
        yield CounterMetricFamily(
            "floodmark_serving_load_failures",
            "Attempts to load a version that failed.",
            value=state.load_failures,
        )
