"""Whether Prefect tries a task again is a property of the error's type."""

from typing import Any

from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task

from training.errors import RetryableError


def when_retryable(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Retry only what may succeed later."""
    del task, run
    return isinstance(state.result(raise_on_failure=False), RetryableError)
