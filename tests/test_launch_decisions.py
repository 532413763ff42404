"""What the launcher decides, without a rank: hosts, settings, addresses, and who is frozen."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import pool, rank_environment
from infra.launch_settings import LaunchSettings
from infra.settings import load_settings
from training.errors import ConfigurationError, FloodmarkError, RetryableError, TrainingFailedError
from training.heartbeat import Sign
from training.launch_hosts import HostBook, discover, parse_hosts
from training.launch_plan import Host, LaunchPlan
from training.launch_rendezvous import Rendezvous, assign, meeting_address, require_private
from training.launch_round import Round
from training.launch_watch import Stall, Watch


@pytest.mark.parametrize("text", ["a", "a:0", "a:-1", "a:two", ":2", "-oProxyCommand=x:1", "a b:1", "a:1:2"])
def test_what_is_no_host_is_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="is no host; write name:slots"):
        parse_hosts([text])


def test_hosts_are_read_without_comments_and_never_twice() -> None:
    assert parse_hosts(["# two", "", "a:1 # slow", "10.0.0.2:4"]) == (
        Host(name="a", slots=1),
        Host(name="10.0.0.2", slots=4),
    )
    with pytest.raises(ValueError, match="named twice: a"):
        parse_hosts(["a:1", "a:2"])


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ('pool = "cloud"', "pool is 'cloud'; allowed are local, hosts, elastic"),
        ('pool = "hosts"', "needs hosts = "),
        ('pool = "hosts"\nhosts = ["a"]', "'a' is no host"),
        ('pool = "hosts"\nhosts = ["a:1"]', "ranks is 2, and the hosts have 1 slots (a:1)"),
        ('pool = "hosts"\nhosts = ["a:2"]\nhost_file = "b"', "not both"),
        ('pool = "hosts"\nhost_file = "absent"', "the host file absent cannot be read: No such file"),
        ('pool = "elastic"', "needs discovery_script"),
        ('pool = "elastic"\ndiscovery_script = "/absent"', "there is no discovery_script /absent"),
        ('pool = "elastic"\ndiscovery_script = "/etc/passwd"', "may not be run; chmod +x /etc/passwd"),
        (
            'pool = "elastic"\ndiscovery_script = "/bin/true"\nmin_ranks = 3',
            "min_ranks is 3, more than ranks, 2",
        ),
        ("watchdog_seconds = 1", "watchdog_seconds is 1.0; it must be at least 5"),
        ("min_ranks = 0", "min_ranks is 0"),
    ],
)
def test_settings_that_do_not_fit_the_pool_are_refused(tmp_path: Path, settings: str, complaint: str) -> None:
    file = tmp_path / "floodmark.toml"
    file.write_text(f"[training]\n{settings}\n")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file, {})
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("echo rubbish", "is of no use: 'rubbish' is no host"),
        ("echo no network >&2; exit 3", "ended with exit code 3: no network"),
        ("exit 0", "printed no host"),
    ],
)
def test_a_discovery_script_that_does_not_do_its_work_is_named(
    tmp_path: Path, body: str, complaint: str
) -> None:
    script = tmp_path / "discover"
    script.write_text(f"#!/bin/sh\n{body}\n")
    with pytest.raises(ConfigurationError, match="cannot be run"):
        discover(str(script))
    script.chmod(0o755)
    with pytest.raises(ConfigurationError) as caught:
        discover(str(script))
    assert complaint in str(caught.value)
    assert str(script) in str(caught.value)
    with pytest.raises(ConfigurationError, match="there is no discovery script"):
        discover(str(tmp_path / "absent"))


@pytest.mark.parametrize("address", ["0.0.0.0", "8.8.8.8", "224.0.0.1"])  # noqa: S104 - refused
def test_the_rendezvous_listens_on_no_public_address(address: str) -> None:
    with pytest.raises(ConfigurationError, match="must not listen"):
        require_private(address)
    with pytest.raises(ConfigurationError, match="must not listen"):
        Rendezvous(address, [])


def test_addresses_are_found_by_interface_or_route() -> None:
    assert meeting_address([], None) == "127.0.0.1"
    assert meeting_address(["127.0.0.1"], "lo") == "127.0.0.1"
    with pytest.raises(ConfigurationError, match=r"(?s)no network interface 'eth99'.*lo"):
        meeting_address([], "eth99")
    with pytest.raises(ConfigurationError, match=r"host a\.\.b cannot be found"):
        meeting_address(["a..b"], None)


def test_ranks_are_dealt_to_slots_in_order_and_never_too_few() -> None:
    hosts = parse_hosts(["a:2", "b:3"])
    assert [slot.hostname for slot in assign(hosts, 2, 4)] == ["a", "a", "b", "b"]
    with pytest.raises(ConfigurationError, match="6 ranks are asked for, and there are 5 slots"):
        assign(hosts, 6, 6)


def test_an_unknown_host_key_is_never_accepted() -> None:
    command = LaunchSettings(ssh_port=2222, ssh_known_hosts=Path("/keys")).ssh_command()
    assert "StrictHostKeyChecking=yes" in command
    assert "BatchMode=yes" in command
    assert command[-4:] == ("-p", "2222", "-o", "UserKnownHostsFile=/keys")


def test_access_to_s3_is_only_for_ranks_that_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    monkeypatch.setenv("PREFECT_API_KEY", "key")
    secrets = {"AWS_SECRET_ACCESS_KEY", "PREFECT_API_KEY"}
    assert not secrets & set(rank_environment.of_ranks(["/rows.parquet"]))
    assert not secrets & set(rank_environment.of_supervisor())
    assert secrets & set(rank_environment.of_ranks(["s3://rows"])) == {"AWS_SECRET_ACCESS_KEY"}


def test_a_host_rests_from_its_second_failure_in_a_row_on_and_longer_each_time() -> None:
    hosts, book = parse_hosts(["a:1", "b:1"]), HostBook()
    book.failed("b", 100)
    assert book.usable(hosts, 100) == hosts
    book.failed("b", 100)
    assert [host.name for host in book.usable(hosts, 109)] == ["a"]
    assert book.usable(hosts, 111) == hosts
    book.failed("b", 111)
    assert [host.name for host in book.usable(hosts, 130)] == ["a"]
    for _ in range(50):
        book.failed("b", 200)
    assert book.usable(hosts, 801) == hosts  # bounded
    book.worked("b")
    book.failed("b", 900)
    assert book.usable(hosts, 900) == hosts
    book.failed("a", 900, unreachable=True)
    assert [host.name for host in book.usable(hosts, 901)] == ["b"]


def test_news_that_arrive_together_do_not_make_a_waiting_rank_busy() -> None:
    watch = Watch([0], patience=10, now=0)
    for at in range(1, 12):
        for late in (0, 0.01):
            watch.observe(replace(SIGN, beats=at, cpu=(at + late) / 100 + 5 * late), at + late)
    assert watch.stall(11.1) == Stall(frozen=())


SIGN = Sign(rank=0, pid=1, phase="reads")
Change = Callable[[Sign, int], Sign]


@pytest.mark.parametrize(
    ("change", "stall"),
    [
        (lambda sign, _: sign, Stall(frozen=(0, 1))),
        (lambda sign, at: replace(sign, beats=at), Stall(frozen=())),
        (lambda sign, at: replace(sign, beats=at, step=at), None),
        (lambda sign, at: replace(sign, beats=at, ticks=at), None),
        (lambda sign, at: replace(sign, cpu=float(at)), None),  # an import that holds the interpreter
        (lambda sign, at: replace(sign, beats=at, cpu=float(at)), None),  # traces, compiles or reads
        (lambda sign, at: replace(sign, beats=at, cpu=at / 100), Stall(frozen=())),  # waits
        (lambda sign, at: replace(sign, beats=at, cpu=float(at), stepping=True), Stall(frozen=())),
        (lambda sign, at: replace(sign, cpu=float(at)) if sign.rank else sign, Stall(frozen=(0,))),
    ],
)
def test_life_and_progress_are_told_apart(change: Change, stall: Stall | None) -> None:
    watch = Watch([0, 1], patience=10, now=0)
    for at in range(1, 12):
        for rank in (0, 1):
            watch.observe(change(replace(SIGN, rank=rank), at), at)
    assert watch.stall(11) == stall


def test_a_rank_that_starts_slowly_on_a_crowded_machine_is_not_taken_for_frozen() -> None:
    watch, starting = Watch([0], patience=10, now=0), Sign(rank=0, pid=1)
    for at in range(1, 30):
        watch.observe(replace(starting, cpu=at / 20), at)
        assert watch.stall(at) is None
    for at in range(30, 45):
        watch.observe(replace(starting, cpu=29 / 20), at)
    assert watch.stall(45) == Stall(frozen=(0,))


@given(st.lists(st.sampled_from([0, 1]), max_size=40))
def test_a_rank_is_frozen_exactly_when_its_last_sign_is_too_old(beating: list[int]) -> None:
    watch, last, beats = Watch([0, 1], patience=5, now=0), [0, 0], [0, 0]
    for now, rank in enumerate(beating, start=1):
        beats[rank] += 1
        last[rank] = now
        for each in (0, 1):
            watch.observe(replace(SIGN, rank=each, beats=beats[each], step=beats[each]), now)
        old = tuple(each for each in (0, 1) if now - last[each] >= 5)
        assert watch.stall(now) == (Stall(frozen=old) if old else None)


@pytest.fixture
def plan() -> LaunchPlan:
    return LaunchPlan(
        command=("a", "b\n"),
        environment={"X": "1"},
        paths=("/p",),
        output="/o",
        logs="/l",
        hosts=(),
        discovery="/d",
        fewest_ranks=1,
        most_ranks=2,
        ssh=("ssh",),
        interface=None,
        watchdog_seconds=1.5,
        exchange_seconds=3,
        timeline=True,
    )


def test_a_plan_is_the_same_after_its_way_through_the_pipe(plan: LaunchPlan) -> None:
    assert LaunchPlan.from_line(plan.to_line()) == plan
    assert plan.to_line().count("\n") == 1


@pytest.mark.parametrize(
    ("kind", "retryable", "raised"),
    [
        ("ConfigurationError", False, ConfigurationError),
        ("InvalidWindowError", False, TrainingFailedError),
        ("RetryableError", True, RetryableError),
    ],
)
def test_what_a_rank_failed_of_keeps_its_kind(
    plan: LaunchPlan, kind: str, retryable: bool, raised: type[FloodmarkError]
) -> None:
    error = {"type": kind, "message": "no bucket", "traceback": "", "retryable": retryable}
    current = Round(plan, (Host(name="a", slots=1),), lambda **_: None)
    failure = current._cause([{"rank": 0, "host": "a", "code": 1, "error": error}])  # noqa: SLF001 - the decision
    error_of = pool._error(failure)  # noqa: SLF001 - likewise
    assert type(error_of) is raised
    assert error_of.message == f"rank 0 failed: {kind}: no bucket"
