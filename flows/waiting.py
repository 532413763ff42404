"""How the loop waits for something to come: woken by the queue where there is one, and at most so long."""

import time
from collections.abc import Callable

from flows import interrupt
from infra.arrival_queue import ArrivalQueue
from infra.source import Source
from training.errors import RetryableError

QUIET_SECONDS = 1.0
"""Pause after messages that tell of nothing new, which come at once, again and again."""

Tell = Callable[[str], None]


class Waiting:
    """The pauses of one loop. What is wrong with the queue is told once, until it changes."""

    def __init__(self, source: Source, queue: ArrivalQueue | None, tell: Tell) -> None:
        self.source, self.queue, self.tell = source, queue, tell
        self.told = ""

    def wait(self, seconds: float) -> None:
        """Wait until something new has come, or `seconds` have passed.

        Nothing is left to take: messages are taken out of the queue first, because the ledger has all
        windows but those whose parts may still be arriving.
        """
        until = time.monotonic() + seconds
        if self.queue is not None:
            try:
                self._listen(self.queue, until)
            except RetryableError as error:
                self._say(f"{error}; new windows are found by listing every {seconds:g} s")
            else:
                return
        interrupt.pause(max(0.0, until - time.monotonic()))

    def _listen(self, queue: ArrivalQueue, until: float) -> None:
        settling = set(self.source.settling)
        queue.delete(lambda key: self.source.window_of(key) not in settling)
        left = 0.0
        while (left := until - time.monotonic()) >= 1:
            keys = queue.receive(left)
            self._say(
                f"The queue {queue.url} holds messages that are not S3 events of {self.source.store.url}; "
                "they are left there"
                if queue.unread
                else ""
            )
            if self.source.notice(keys):
                return
            interrupt.pause(min(QUIET_SECONDS, max(0.0, until - time.monotonic())))
        interrupt.pause(max(0.0, left))

    def _say(self, what: str) -> None:
        if what and what != self.told:
            self.tell(what)
        self.told = what or self.told
