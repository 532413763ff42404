"""What a model's ledger says, as Prometheus metrics.

Names and units follow Prometheus' conventions (https://prometheus.io/docs/practices/naming/): seconds, ratios
from 0 to 1, totals that only grow, points in time instead of ages. What is not known is absent: no metric is
made up as 0 or NaN.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from monitoring.history import BOOKKEEPING, History
from monitoring.incidents import Kind, kind_of_step, open_incidents
from monitoring.records import Entry, FailureRecord, PromotionRecord, TrainingRecord, WindowRecord
from monitoring.verdicts import DriftStatus
from training.types import PromotionOutcome

STEPS = ("window", "training", "gates", "aliases", "alert")
"""The kinds of steps, by the first word of their texts in `next_step`."""

OUTCOMES = ("bootstrap", "scored", "quarantined", "skipped")


class LedgerCollector(Collector):
    """Turns a ledger into metrics whenever it is scraped; `load` raises what the ledger raises."""

    def __init__(self, load: Callable[[], History], model: str, channels: Sequence[str]) -> None:
        self.load, self.model, self.channels = load, model, channels

    def collect(self) -> Iterator[Metric]:
        """Yield every metric that the ledger knows."""
        history = self.load()
        for family in (_windows, _newest_window, _champion, _trainings, _times, _failures):
            yield from (self._named(metric) for metric in family(history))
        yield self._named(_incidents(history, self.channels))

    def _named(self, metric: Metric) -> Metric:
        for sample in metric.samples:
            sample.labels["model"] = self.model
        return metric


def registry_of(load: Callable[[], History], model: str, channels: Sequence[str] = ()) -> CollectorRegistry:
    """Return a registry of one model's metrics that reads the ledger on each scrape, and not before."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LedgerCollector(load, model, channels))
    return registry


def exposition(history: History, model: str, channels: Sequence[str] = ()) -> str:
    """Return the metrics in Prometheus' text format."""
    return generate_latest(registry_of(lambda: history, model, channels)).decode()


def _windows(history: History) -> Iterator[Metric]:
    counted = Counter(record.outcome for record in history.windows)
    yield _counter(
        "windows", "Windows taken, by what became of them.", "outcome", dict.fromkeys(OUTCOMES, 0) | counted
    )
    scored = [record for record in history.windows if record.outcome == "scored"]
    verdicts = Counter(record.drift.status.value for record in scored if record.drift)
    statuses = dict.fromkeys((status.value for status in DriftStatus), 0)
    yield _counter("drift_verdicts", "Windows judged for drift, by verdict.", "status", statuses | verdicts)
    yield _total("rows", "Rows of all valid windows.", sum(record.rows for record in history.windows))
    yield _total(
        "alerts", "Rows that scored above the flood mark.", sum(record.alerts or 0 for record in scored)
    )


def _newest_window(history: History) -> Iterator[Metric]:
    scored = [record for record in history.windows if record.outcome == "scored"]
    if not scored:
        return
    newest = scored[-1]
    yield _gauge("window_rows", "Rows of the newest scored window.", newest.rows)
    if newest.alert_rate is not None:
        yield _gauge("alert_ratio", "Share of alerts in the newest scored window.", newest.alert_rate)
    if newest.scores is not None:
        score = GaugeMetricFamily(
            "floodmark_anomaly_score",
            "Anomaly scores of the newest scored window, at a probability.",
            labels=["probability"],
        )
        for probability, value in newest.scores.quantiles.items():
            score.add_metric([probability], value)
        yield score
    if newest.drift is None:
        return
    if newest.drift.share is not None:
        yield _gauge(
            "drifted_columns_ratio",
            "Share of drifted columns in the newest scored window.",
            newest.drift.share,
        )
    status = GaugeMetricFamily(
        "floodmark_drift_status",
        "Verdict on the newest scored window: 1 for the one that holds.",
        labels=["status"],
    )
    for known in DriftStatus:
        status.add_metric([known.value], float(newest.drift.status is known))
    yield status
    tests = GaugeMetricFamily(
        "floodmark_drift_test_drifted", "Whether a test called the newest scored window.", labels=["test"]
    )
    for test in newest.drift.tests:
        tests.add_metric([test.test], float(test.status is DriftStatus.DRIFTED))
    yield tests


def _champion(history: History) -> Iterator[Metric]:
    version = history.champion
    if version is None:
        return
    entry = history.registration_of(version)
    info = GaugeMetricFamily("floodmark_champion_info", "The version that serves.", labels=["version"])
    info.add_metric([version], 1)
    yield info
    if (age := history.windows_since(history.champion_since)) is not None:
        yield _gauge("model_age_windows", "Valid windows taken since the champion's training.", age)
    if entry is None or not isinstance(training := entry.record, TrainingRecord):
        return
    yield _gauge(
        "model_trained_timestamp_seconds", "When the champion's training ended.", entry.at.timestamp()
    )
    if training.threshold is not None:
        yield _gauge("threshold", "The champion's flood mark.", training.threshold.value)
        yield _gauge(
            "target_alert_ratio",
            "Share of alerts that the flood mark was set for.",
            training.threshold.target_alert_rate,
        )


def _trainings(history: History) -> Iterator[Metric]:
    outcomes = Counter(record.outcome for record in history.trainings)
    yield _counter(
        "trainings", "Trainings, by how they ended.", "outcome", {"registered": 0, "failed": 0} | outcomes
    )
    ran = [record.seconds for record in history.trainings if record.outcome == "registered"]
    yield SummaryMetricFamily(
        "floodmark_training_duration_seconds",
        "Duration of trainings that registered a model.",
        count_value=len(ran),
        sum_value=sum(ran),
    )
    judged = Counter(record.outcome.value for record in history.promotions)
    known = dict.fromkeys((outcome.value for outcome in PromotionOutcome), 0)
    yield _counter(
        "promotions", "Verdicts on candidates and moves of the champion.", "outcome", known | judged
    )


def _times(history: History) -> Iterator[Metric]:
    for name, told, counts in (
        ("last_window", "When the last window was taken.", _of(WindowRecord)),
        ("last_training", "When the last training ended.", _of(TrainingRecord)),
        ("last_promotion", "When a candidate was last judged, or the champion moved.", _of(PromotionRecord)),
        ("last_success", "When a step last ended without a failure.", _succeeded),
    ):
        times = [entry.at.timestamp() for entry in history.entries if counts(entry)]
        if times:
            yield _gauge(f"{name}_timestamp_seconds", told, times[-1])


def _failures(history: History) -> Iterator[Metric]:
    failed = Counter(
        kind_of_step(entry.record.step)
        for entry in history.entries
        if isinstance(entry.record, FailureRecord)
    )
    yield _counter(
        "failures", "Failures of steps, by the step's kind.", "step", dict.fromkeys(STEPS, 0) | failed
    )
    if (mute := history.mute(datetime.now(UTC))) is not None and mute.until is not None:
        end = mute.until.timestamp()
        yield _gauge("mute_end_timestamp_seconds", "Until when no training is started.", end)


def _incidents(history: History, channels: Sequence[str]) -> Metric:
    kinds: dict[Kind, int] = dict.fromkeys(get_args(Kind), 0)
    for incident in open_incidents(history, channels):
        kinds[incident.kind] += 1
    family = GaugeMetricFamily(
        "floodmark_open_incidents", "Incidents whose end was not seen.", labels=["kind"]
    )
    for kind, count in kinds.items():
        family.add_metric([kind], count)
    return family


def _of(kind: type) -> Callable[[Entry], bool]:
    return lambda entry: isinstance(entry.record, kind)


def _succeeded(entry: Entry) -> bool:
    return not isinstance(entry.record, (*BOOKKEEPING, FailureRecord))


def _gauge(name: str, told: str, value: float) -> Metric:
    return GaugeMetricFamily(f"floodmark_{name}", told, value=value)


def _total(name: str, told: str, value: float) -> Metric:
    return CounterMetricFamily(f"floodmark_{name}", told, value=value)


def _counter(name: str, told: str, label: str, counts: dict[str, int]) -> Metric:
    family = CounterMetricFamily(f"floodmark_{name}", told, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family
