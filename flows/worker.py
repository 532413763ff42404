"""A flow run that a worker started: it ends with its worker, and as soon as any part of it is cancelled.

Prefect's process worker starts a flow run in a session of its own. When the worker is killed, the run goes
on, and nobody is left to carry out its cancellation. Cancelling a nested run, which the UI offers, reaches
nobody at all: the worker looks after the run that it started, and no other (both seen with Prefect 3.9.1).
"""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
from prefect.client.schemas.objects import StateType
from prefect.states import Cancelling

from training.bound_child import die_with_parent

STARTED_BY_WORKER, OWN_RUN = "PREFECT__WORKER_NAME", "PREFECT__FLOW_RUN_ID"
LOOK_S = 5.0
CANCELLED = (StateType.CANCELLING, StateType.CANCELLED)


@contextmanager
def under_worker() -> Iterator[None]:
    """Bind this process's flow run to the worker that started it; without a worker, do nothing.

    A worker that dies sends it SIGTERM, by which Prefect ends a run as crashed. Ranks end with the run.
    """
    if STARTED_BY_WORKER not in os.environ or OWN_RUN not in os.environ:
        yield
        return
    die_with_parent(signal.SIGTERM)
    over = Event()
    watcher = Thread(target=_cancel_as_a_whole, args=(UUID(os.environ[OWN_RUN]), over), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(LOOK_S)


def _cancel_as_a_whole(run: UUID, over: Event) -> None:
    """Ask for the cancellation of a run once one that is nested in it is being cancelled."""
    while not over.wait(LOOK_S):
        try:
            with get_client(sync_client=True) as client:
                if _a_part_is_cancelled(client, run):
                    client.set_flow_run_state(run, Cancelling(message="a nested flow run was cancelled"))
                    return
        except Exception:  # the API is down for a while; the run goes on without it
            logging.getLogger(__name__).warning("the states of nested runs are not known", exc_info=True)


def _a_part_is_cancelled(client: SyncPrefectClient, run: UUID) -> bool:
    parents = [run]
    while parents:
        within = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=parents))
        nested = [
            (part.id, part.state.type) for part in client.read_flow_runs(flow_run_filter=within) if part.state
        ]
        if any(state in CANCELLED for _, state in nested):
            return True
        parents = [part for part, state in nested if state is StateType.RUNNING]
    return False
