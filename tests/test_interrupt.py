"""An interrupt that Python drops is not lost."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from flows.interrupt import listen, pause


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    listen()
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_dropped_interrupt_is_raised_at_the_next_look() -> None:
    pause()
    with suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        pause(60)
    with pytest.raises(KeyboardInterrupt):
        pause()
    listen()
    pause()
