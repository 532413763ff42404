"""Ctrl-C that is not lost: Python drops a KeyboardInterrupt that arrives in a finalizer or a callback."""

import signal
from threading import Event
from types import FrameType

_ASKED = Event()


def listen(*numbers: signal.Signals) -> None:
    """Remember each SIGINT, or these signals, from now on, beside raising KeyboardInterrupt at once."""
    _ASKED.clear()
    for number in numbers or (signal.SIGINT,):
        signal.signal(number, _interrupt)


def pause(seconds: float = 0.0) -> None:
    """Wait, and raise KeyboardInterrupt if one was asked for, even if it was lost since."""
    if _ASKED.wait(seconds):
        raise KeyboardInterrupt


def _interrupt(number: int, _: FrameType | None) -> None:
    del number
    _ASKED.set()
    raise KeyboardInterrupt
