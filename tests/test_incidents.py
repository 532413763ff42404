"""Incidents and the messages about them, from the ledger alone."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from histories import (
    START,
    bootstrap,
    history,
    judged,
    quarantined,
    scored,
    settled,
    trained,
    version_of,
    window,
)
from infra.ledger import ENTRIES
from monitoring.alerts import ATTEMPTS, Message, Site, Stage, due_messages
from monitoring.history import History
from monitoring.incidents import Incident, incidents, open_incidents
from monitoring.next_step import Judge, Notify, Settle, TakeWindow, Train, next_step
from monitoring.records import (
    AlertRecord,
    ChannelOutcome,
    ClaimRecord,
    Entry,
    FailureRecord,
    PromotionRecord,
    Record,
    ReleaseRecord,
    SnoozeRecord,
    WindowRecord,
)
from monitoring.verdicts import DriftStatus, DriftTest, DriftVerdict
from training.types import GateResult, PromotionOutcome, Verdict

DRIFTED, STABLE, INCONCLUSIVE = DriftStatus.DRIFTED, DriftStatus.STABLE, DriftStatus.INCONCLUSIVE
REFUSED, UNDECIDED = PromotionOutcome.REFUSED, PromotionOutcome.UNDECIDED
SITE = Site(model="pumps", home="/a home", pages="https://pages.example/reports", source="s3://plant/pumps")
NOW = START + timedelta(days=30)


def by_person(version: str) -> PromotionRecord:
    return PromotionRecord(
        version=version, from_version="1", by="person", outcome=PromotionOutcome.ROLLED_BACK, reason="alarms"
    )


def brief(found: Sequence[Incident]) -> list[tuple[str, str, bool]]:
    return [(incident.id, incident.reason, incident.open) for incident in found]


def extended(past: History, record: Record) -> History:
    sequence = past.next_sequence
    entry = Entry(sequence=sequence, at=START + timedelta(minutes=sequence), record=record)
    return History(entries=(*past.entries, entry))


def due(past: History, channels: Sequence[str] = ("webhook",), now: datetime = NOW) -> list[Message]:
    return due_messages(past, SITE, channels=channels, escalate_after=5, now=now)


def sent(message: Message, works: Callable[[str], bool] = lambda _: True) -> AlertRecord:
    outcomes = tuple(
        ChannelOutcome(
            channel=channel, delivered=works(channel), answer="HTTP 200" if works(channel) else "500"
        )
        for channel in message.channels
    )
    assert message.stage != "test"
    return AlertRecord(incident=message.incident, stage=message.stage, outcomes=outcomes)


def send_all(
    past: History, channels: Sequence[str] = ("webhook",), works: Callable[[str], bool] = lambda _: True
) -> tuple[History, list[Message]]:
    """What the loop does until no message is due."""
    messages: list[Message] = []
    while found := due(past, channels):
        messages.append(found[0])
        past = extended(past, sent(found[0], works))
        assert len(messages) < 1_000, "messages without end"
    return past, messages


class TestIncidents:
    def test_drift_lasts_from_the_first_drifted_window_to_a_stable_one(self) -> None:
        records = [scored("a", DRIFTED), scored("b", INCONCLUSIVE), quarantined("x"), scored("c", DRIFTED)]
        [drift, data] = incidents(history(*records))
        assert (drift.id, drift.windows, drift.open) == ("drift-1", ("a", "c"), True)
        assert (data.id, data.windows, data.open) == ("data-3", ("x",), False)
        [drift, _] = incidents(history(*records, scored("d"), scored("e", STABLE)))
        assert (drift.resolved_at, drift.resolution) == (START + timedelta(minutes=5), "window d is STABLE")

    def test_more_alerts_than_usual_are_an_incident_where_no_drift_explains_them(self) -> None:
        def window(name: str, alerts: DriftStatus, status: DriftStatus = STABLE) -> WindowRecord:
            test = DriftTest(test="alerts", status=alerts, statistic=9.0, bound=4.0, reason="9 alerts")
            verdict = DriftVerdict(status=status, share=0.0, reason="because", tests=(test,))
            return replace(scored(name), drift=verdict)

        past = history(window("a", DRIFTED), window("b", DRIFTED, INCONCLUSIVE))
        assert brief(incidents(past)) == [("alerts-1", "9 alerts", True)]
        assert open_incidents(extended(past, window("c", STABLE))) == []
        [drift] = open_incidents(extended(past, window("c", DRIFTED, DRIFTED)))
        assert drift.kind == "drift"
        assert due(past)[0].text.startswith("2 windows from a to b brought more alerts than usual")

    def test_a_new_champion_ends_drift_and_a_failed_training(self) -> None:
        past = history(scored("a", DRIFTED), trained(None, "a"), trained(None, "a"))
        assert [incident.kind for incident in open_incidents(past)] == ["drift", "training"]
        assert open_incidents(extended(past, judged("2"))) == []

    def test_an_unusable_window_after_another_is_the_same_incident(self) -> None:
        past = history(bootstrap("a"), quarantined("b"), quarantined("c"))
        assert brief(incidents(past)) == [("data-2", "quarantined: unreadable", True)]
        assert open_incidents(extended(past, bootstrap("d"))) == []

    @pytest.mark.parametrize("outcome", [REFUSED, UNDECIDED])
    @pytest.mark.parametrize("end", [judged("2"), by_person("2"), trained("3")])
    def test_a_candidate_waits_until_a_champion_or_another_candidate_comes(
        self, outcome: PromotionOutcome, end: Record
    ) -> None:
        past = history(trained("2"), judged("2", outcome), settled("2"))
        assert brief(incidents(past)) == [("candidate-2", f"version 2 was {outcome} by gates: gates", True)]
        assert not [found for found in open_incidents(extended(past, end)) if found.kind == "candidate"]

    def test_a_move_by_a_person_is_told_until_the_next_window(self) -> None:
        past = history(judged("1"), by_person("2"))
        assert brief(incidents(past)) == [
            ("champion-2", "version 1 was rolled back to version 2 by person: alarms", True)
        ]
        assert open_incidents(extended(past, scored("a"))) == []

    def test_a_step_that_fails_again_is_an_incident_until_it_succeeds(self) -> None:
        def tried(step: str, error: str) -> list[Record]:
            return [ClaimRecord(step=step), FailureRecord(step=step, error=error)]

        once = tried("training on a, b", "GPU gone")
        assert incidents(history(*once)) == []
        twice = [*once, scored("c"), *tried("training on a, b, c", "GPU still gone")]
        assert brief(incidents(history(*twice))) == [("step-2", "training on a, b, c: GPU still gone", True)]
        claim = ClaimRecord(step="training on a, b, c")
        cancelled = [*twice, claim, ReleaseRecord(step=claim.step, reason="TerminationSignal")]
        assert [found.kind for found in open_incidents(history(*cancelled))] == ["step"], "says nothing of it"
        done = [*cancelled, claim, trained("2")]
        assert open_incidents(history(*done)) == []

    def test_a_skipped_window_ends_the_failing_of_its_step(self) -> None:
        failures: list[Record] = [FailureRecord(step=f"window {name}", error="KeyError") for name in "aab"]
        assert [found.kind for found in open_incidents(history(*failures))] == ["step"]
        snoozed = [*failures, ClaimRecord(step="window b"), SnoozeRecord(incidents=(), until=NOW, reason="")]
        assert [found.kind for found in open_incidents(history(*snoozed))] == ["step"], "says nothing of it"
        assert open_incidents(history(*failures, scored("b"))) == []

    def test_steps_are_told_apart_by_their_first_word(self) -> None:
        training = trained("1")
        steps = [
            TakeWindow(window=window("a")),
            Train(reason="", windows=(version_of("a"),)),
            Judge(training=training),
            Settle(promotion=judged("1")),
            Notify(message=due(history(quarantined("a")))[0]),
        ]
        words = [str(step).split()[0] for step in steps]
        assert words == ["window", "training", "gates", "aliases", "alert"]


class TestMessages:
    def test_a_message_says_what_happened_since_when_where_to_look_and_what_to_run(self) -> None:
        [message] = due(history(bootstrap("a"), quarantined("day 2")))
        assert message.id == "pumps/data-2/opened/20260101T000200.000000Z"
        assert message.text == "Window day 2 could not be used: quarantined: unreadable"
        assert message.since == START + timedelta(minutes=2)
        assert message.link == "https://pages.example/reports/pumps/day%202.html"
        assert message.command == "floodmark run s3://plant/pumps --home '/a home' --model pumps"

    def test_a_message_links_to_no_page_that_was_not_written(self) -> None:
        assert [message.link for message in due(history(scored("a"), trained(None)))] == [None]

    def test_a_message_about_a_candidate_links_to_the_page_of_its_gates(self) -> None:
        gate = GateResult(gate="cost", verdict=Verdict.FAIL, observed=2.0, bound=1.0, reason="slow")
        candidate = replace(judged("2", REFUSED), gates=(gate,))
        for past in (history(candidate), history(scored("a", DRIFTED), candidate, scored("b", DRIFTED))):
            links = {message.kind: message.link for message in due(past)}
            assert links["candidate"] == "https://pages.example/reports/pumps/gates-2.html"
        [message] = due(history(judged("2", UNDECIDED)))
        assert message.link is None, "it could not be judged, and has no page"

    @pytest.mark.parametrize(
        ("records", "command"),
        [
            ([scored("a", DRIFTED)], "floodmark status"),
            ([trained(None)], "floodmark status"),
            ([judged("2", REFUSED)], "floodmark promote 2 --force --reason TEXT"),
            ([judged("2", UNDECIDED)], "floodmark promote 2 --reason TEXT"),
            ([by_person("2")], "floodmark history"),
            ([FailureRecord(step="window a", error="x")] * 2, "floodmark run s3://plant/pumps"),
        ],
    )
    def test_the_next_command(self, records: list[Record], command: str) -> None:
        assert due(history(*records))[0].command == f"{command} --home '/a home' --model pumps"

    def test_without_a_channel_nothing_is_due(self) -> None:
        assert due(history(quarantined("a")), channels=()) == []

    def test_what_is_still_open_is_told_again_once(self) -> None:
        past, messages = send_all(history(scored("a", DRIFTED)))
        for name in "bcdefghijklm":
            past, more = send_all(extended(past, scored(name, DRIFTED)))
            messages += more
        assert [message.stage for message in messages] == ["opened", "escalated"]
        assert messages[1].text == "Still open: 6 windows from a to f drifted: because"
        past, messages = send_all(extended(past, scored("z", STABLE)))
        assert [message.text for message in messages] == [
            "Resolved, window z is STABLE: 13 windows from a to m drifted: because"
        ]

    def test_an_incident_that_nobody_heard_of_is_not_told_resolved(self) -> None:
        assert due(history(quarantined("a"), bootstrap("b"))) == []

    def test_a_snooze_ends_by_itself_or_with_its_incident(self) -> None:
        past = history(quarantined("a"))
        until = START + timedelta(hours=1)
        snoozed = extended(past, SnoozeRecord(incidents=("data-1",), until=until, reason="known"))
        assert due(snoozed, now=until - timedelta(seconds=1)) == []
        assert [message.stage for message in due(snoozed, now=until)] == ["opened"]
        told, _ = send_all(past)
        snoozed = extended(told, SnoozeRecord(incidents=("data-1",), until=NOW, reason="known"))
        ended = extended(snoozed, bootstrap("b"))
        assert [message.stage for message in due(ended, now=until)] == ["resolved"]

    def test_a_dead_channel_rests_until_the_next_window_and_is_given_up(self) -> None:
        def works(channel: str) -> bool:
            return channel != "webhook"

        channels = ("webhook", "slack/on-call")
        past, messages = send_all(history(quarantined("w0")), channels, works)
        assert [(message.incident, message.channels) for message in messages] == [
            ("data-1", channels),
            ("channel-2-webhook", ("slack/on-call",)),
        ]
        tries = 0
        for number in range(1, 10):
            past, messages = send_all(extended(past, quarantined(f"w{number}")), channels, works)
            offered = [message for message in messages if "webhook" in message.channels]
            assert len(offered) <= 1, "one time-out a window"
            tries += sum(message.stage == "opened" for message in offered)
        assert tries == ATTEMPTS - 1
        assert [found.subject for found in open_incidents(past, channels)] == ["", "webhook"]
        assert [found.subject for found in open_incidents(past)] == [""], "it is not configured any more"

    def test_messages_wait_for_the_aliases_but_not_for_a_failing_registry(self) -> None:
        past = history(trained("2"), judged("2", REFUSED))
        messages = due(past)
        step = next_step(past, [], messages=messages)
        assert isinstance(step, Settle)
        failed = extended(past, FailureRecord(step=str(step), error="MLflow is down"))
        assert next_step(failed, [], messages=messages) == Notify(message=messages[0])
        told = extended(failed, sent(messages[0]))
        assert next_step(told, [window("a")]) == step

    def test_a_failing_flow_of_messages_lets_the_next_window_pass(self) -> None:
        past = history(quarantined("a"))
        tell = next_step(past, [window("b")], messages=due(past))
        assert isinstance(tell, Notify)
        failed = extended(past, FailureRecord(step=str(tell), error="KeyError", unexpected=True))
        assert next_step(failed, [window("b")], messages=due(failed)) == TakeWindow(window=window("b"))

    def test_a_message_does_not_let_a_failed_training_forget_to_wait(self) -> None:
        past = history(bootstrap("a", retrain_on=("a",)))
        train = next_step(past, [window("a"), window("b")])
        failed = extended(past, FailureRecord(step=str(train), error="GPU gone"))
        told = extended(failed, AlertRecord(incident="x-1", stage="opened", outcomes=()))
        assert next_step(told, [window("a"), window("b")]) == TakeWindow(window=window("b"))


RECORDS: list[Callable[[str], Record]] = [
    bootstrap,
    quarantined,
    lambda name: scored(name, STABLE),
    lambda name: scored(name, DRIFTED),
    lambda name: scored(name, INCONCLUSIVE),
    lambda _: trained(None),
    trained,
    judged,
    lambda name: judged(name, REFUSED),
    lambda name: judged(name, UNDECIDED),
    by_person,
    settled,
    lambda name: ClaimRecord(step=f"window {name}"),
    lambda _: FailureRecord(step="training on a", error="x"),
    lambda _: ClaimRecord(step="training on a"),
    lambda _: ReleaseRecord(step="training on a", reason="KeyboardInterrupt"),
]
ORDERS = st.lists(st.sampled_from(RECORDS), max_size=30).map(
    lambda made: [make(f"n{number}") for number, make in enumerate(made)]
)
CHANNELS = ("webhook", "slack/on-call")


@given(records=ORDERS, answers=st.lists(st.booleans(), max_size=40))
def test_each_channel_hears_of_each_incident_once_whatever_the_order(
    records: list[Record], answers: list[bool]
) -> None:
    remaining = iter(answers)

    def works(channel: str) -> bool:
        return channel != "webhook" or next(remaining, True)

    past, messages = History(), []
    for record in records:
        past = extended(past, record)
        while found := due(past, CHANNELS):
            flaky = {channel: works(channel) for channel in found[0].channels}
            past = extended(past, sent(found[0], flaky.__getitem__))
            messages += [(found[0], channel, flaky[channel]) for channel in flaky]
    delivered = Counter((message.id, channel) for message, channel, done in messages if done)
    assert set(delivered.values()) <= {1}
    assert (
        max(Counter((message.id, channel) for message, channel, _ in messages).values(), default=0)
        <= ATTEMPTS
    )
    for incident in incidents(past, CHANNELS):
        stages = [message.stage for message, channel, _ in messages if message.incident == incident.id]
        ordered = [stage for stage in get_args(Stage) if stage in stages]
        assert list(dict.fromkeys(stages)) == ordered, "opened, then escalated, then resolved"
        told = {
            (message.stage, channel) for message, channel, _ in messages if message.incident == incident.id
        }
        on_call = "slack/on-call"
        if not incident.open and not incident.notice and ("opened", on_call) in told:
            assert ("resolved", on_call) in told
    assert len({incident.id for incident in incidents(past)}) == len(incidents(past))
    assert due(past, CHANNELS) == [], "what was sent is not sent again"


@given(records=ORDERS, split=st.integers(0, 30))
def test_incidents_keep_their_ids_as_the_ledger_grows(records: list[Record], split: int) -> None:
    earlier, later = incidents(history(*records[:split])), incidents(history(*records))
    ends = {incident.id: incident for incident in later}
    for incident in earlier:
        end = ends[incident.id]
        assert end.since == incident.since
        assert incident.open or end == incident, "an end is final"


@given(records=ORDERS)
def test_while_everything_open_is_snoozed_nothing_is_due(records: list[Record]) -> None:
    past = history(*records)
    ids = tuple(incident.id for incident in open_incidents(past))
    snoozed = extended(past, SnoozeRecord(incidents=ids, until=NOW, reason="known"))
    assert due(snoozed, now=NOW - timedelta(seconds=1)) == []
    assert due(snoozed, now=NOW) == due(past), "and later nothing was lost"


@given(when=st.datetimes(timezones=st.just(UTC)))
def test_new_records_survive_json(when: datetime) -> None:
    outcome = ChannelOutcome(channel="webhook", delivered=False, answer="HTTP 500")
    for record in (
        AlertRecord(incident="drift-1", stage="opened", outcomes=(outcome,)),
        SnoozeRecord(incidents=("drift-1",), until=when, reason="known"),
    ):
        entry = Entry(sequence=1, at=START, record=record)
        assert ENTRIES.validate_json(ENTRIES.dump_json(entry)) == entry
