from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from jobkit.run.failure import CAUGHT_SIGNALS, Signals, Stopped


@pytest.fixture(autouse=True)
def restored() -> object:
    before = {number: signal.getsignal(number) for number in CAUGHT_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _told(named: Path) -> None:
    named.write_text("USR1\n", encoding="ascii")
    os.kill(os.getpid(), signal.SIGTERM)


def test_term_becomes_stopped_and_names_itself() -> None:
    with pytest.raises(Stopped) as caught, Signals(None).may_stop():
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.signal == "TERM"


def test_the_name_is_what_the_job_script_wrote(tmp_path: Path) -> None:
    named = tmp_path / "signal"
    stopping = Signals(named)
    with pytest.raises(Stopped) as caught, stopping.may_stop():
        _told(named)
    assert caught.value.signal == "USR1"


def test_a_signal_before_python_was_up_is_not_lost(tmp_path: Path) -> None:
    named = tmp_path / "signal"
    named.write_text("USR2\n", encoding="ascii")
    with pytest.raises(Stopped) as caught, Signals(named).may_stop():
        raise AssertionError("the block must not begin")
    assert caught.value.signal == "USR2"


def test_a_signal_afterwards_does_not_disturb_the_record() -> None:
    with Signals(None).may_stop():
        pass
    os.kill(os.getpid(), signal.SIGTERM)
