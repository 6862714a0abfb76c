from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobkit.core.layout import Exit
from jobkit.core.records import Outcome
from jobkit.core.units import format_moment
from jobkit.runs.tries import NO_HOME, OVERRULING, TaskFacts, Try, decide_outcome
from jobkit.schedulers.types import Accounted
from tests.support.builders import point, record


def accounted(outcome: Outcome | None, *, ended: bool = True, status: int | None = None) -> Accounted:
    return Accounted(
        job_id="77", task=1, ended=ended, outcome=outcome, exit_status=status, evidence="State WORDS"
    )


def with_exit(**fields: object) -> Try:
    defaults: dict[str, object] = {"status": 1, "stage": "run"}
    return Try(number=1, exit=Exit(**(defaults | fields)))  # type: ignore[arg-type]


CUT = replace(record(point()), outcome=Outcome.CANCELLED, provisional=True, signal="TERM")
FULL = record(point())


@given(st.sampled_from(Outcome), st.sampled_from([*Outcome, None]), st.booleans())
def test_a_record_that_is_not_provisional_is_the_truth(
    outcome: Outcome,
    told: Outcome | None,
    ended: bool,  # noqa: FBT001 - hypothesis passes by name
) -> None:
    tried = Try(number=1, record=replace(FULL, outcome=outcome), exit=Exit(status=137, stage="run"))
    verdict = decide_outcome(tried, accounted(told, ended=ended))
    assert (verdict.outcome, verdict.provisional) == (outcome, False)


@pytest.mark.parametrize("told", sorted(OVERRULING))
def test_the_accounting_overrules_a_provisional_record(told: Outcome) -> None:
    verdict = decide_outcome(Try(number=1, record=CUT), accounted(told))
    assert (verdict.outcome, verdict.provisional) == (told, False)
    assert verdict.evidence == "signal TERM; accounting: State WORDS"


@pytest.mark.parametrize(
    "told", [None, accounted(None), accounted(Outcome.OK), accounted(Outcome.TIMEOUT, ended=False)]
)
def test_nothing_less_overrules_it(told: Accounted | None) -> None:
    verdict = decide_outcome(Try(number=1, record=CUT), told)
    assert (verdict.outcome, verdict.provisional) == (Outcome.CANCELLED, True)


def test_an_exit_file_never_overrules_a_record() -> None:
    exit_ = Exit(
        status=23, stage="stage_out", outcome=Outcome.STAGE_OUT, scratch="/scratch/77.1", host="node1"
    )
    verdict = decide_outcome(Try(number=1, record=FULL, exit=exit_))
    assert verdict.outcome is Outcome.OK
    assert verdict.evidence == "files kept in node1:/scratch/77.1"


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"outcome": Outcome.SCRATCH_FULL, "stage": "stage_in"}, Outcome.SCRATCH_FULL),
        ({"stage": "stage_in"}, Outcome.STAGE_IN),
        ({"stage": "environment"}, Outcome.ENVIRONMENT),
        ({"stage": "stage_out"}, Outcome.STAGE_OUT),
        ({"stage": "run"}, Outcome.BUG),
        ({"stage": "done", "status": 0}, Outcome.LOST),
    ],
)
def test_without_a_record_the_exit_file_speaks(fields: dict[str, object], outcome: Outcome) -> None:
    verdict = decide_outcome(with_exit(**fields))
    assert (verdict.outcome, verdict.provisional) == (outcome, False)


@pytest.mark.parametrize(
    ("signal", "outcome"),
    [
        ("USR1", Outcome.TIMEOUT),
        ("SIGUSR1", Outcome.TIMEOUT),
        ("TERM", Outcome.CANCELLED),
        ("USR2", Outcome.CANCELLED),
        ("INT", Outcome.CANCELLED),
    ],
)
def test_a_signal_in_the_exit_file_is_provisional(signal: str, outcome: Outcome) -> None:
    tried = with_exit(signal=signal, status=143)
    assert (decide_outcome(tried).outcome, decide_outcome(tried).provisional) == (outcome, True)
    told = decide_outcome(tried, accounted(Outcome.PREEMPTED))
    assert (told.outcome, told.provisional) == (Outcome.PREEMPTED, False)


def test_stage_out_names_the_folder_that_was_kept() -> None:
    verdict = decide_outcome(with_exit(stage="stage_out", scratch="/scratch/77.1", host="node1", status=11))
    assert verdict.outcome is Outcome.STAGE_OUT
    assert "results kept in node1:/scratch/77.1" in verdict.evidence


def test_killed_is_for_the_accounting_to_explain() -> None:
    killed = with_exit(status=137)
    assert decide_outcome(killed, accounted(Outcome.RAM_OOM)).outcome is Outcome.RAM_OOM
    silent = decide_outcome(killed)
    assert (silent.outcome, silent.provisional) == (Outcome.LOST, True)
    assert decide_outcome(killed, accounted(None)).provisional is False
    assert decide_outcome(killed, accounted(None, ended=False)).provisional, "it lags: it may yet tell"


@pytest.mark.parametrize("tried", [None, Try(number=1)])
def test_with_nothing_home_the_accounting_speaks(tried: Try | None) -> None:
    assert decide_outcome(tried).outcome is None
    assert decide_outcome(tried, accounted(None, ended=False)).outcome is None
    assert decide_outcome(tried, accounted(Outcome.NODE_FAIL)).outcome is Outcome.NODE_FAIL


@pytest.mark.parametrize("tried", [None, Try(number=1)])
@pytest.mark.parametrize("told", [None, Outcome.OK])
def test_an_end_that_left_nothing_is_no_success(tried: Try | None, told: Outcome | None) -> None:
    verdict = decide_outcome(tried, accounted(told, status=0))
    assert verdict.outcome is Outcome.LOST
    assert "State WORDS" in verdict.evidence


TAKEN_BACK = TaskFacts(cancelled="2026-01-02T10:00:00+00:00")


@pytest.mark.parametrize("tried", [None, Try(number=1)])
@pytest.mark.parametrize("packed", [False, True])
def test_what_jobkit_took_back_is_cancelled_where_the_accounting_only_knows_that_it_ended(
    tried: Try | None,
    packed: bool,  # noqa: FBT001 - pytest passes by name
) -> None:
    verdict = decide_outcome(tried, accounted(None, status=137), replace(TAKEN_BACK, packed=packed))
    assert (verdict.outcome, verdict.provisional) == (Outcome.CANCELLED, False)
    assert f"by jobkit at {format_moment('2026-01-02T10:00:00+00:00')}" in verdict.evidence
    assert "State WORDS" in verdict.evidence


def test_a_point_whose_turn_never_came_in_a_shared_job_was_stopped() -> None:
    verdict = decide_outcome(None, accounted(None, status=1), TaskFacts(packed=True))
    assert verdict.outcome is Outcome.STOPPED
    assert "its job ended before its turn came (State WORDS)" in verdict.evidence


def test_what_jobkit_took_back_keeps_a_better_word() -> None:
    assert decide_outcome(None, accounted(Outcome.NODE_FAIL), TAKEN_BACK).outcome is Outcome.NODE_FAIL
    assert decide_outcome(Try(number=1, record=FULL), None, TAKEN_BACK).outcome is Outcome.OK


def test_what_was_taken_back_before_it_began_needs_no_accounting() -> None:
    assert decide_outcome(None, None, TAKEN_BACK).outcome is Outcome.CANCELLED
    assert decide_outcome(Try(number=1), None, TAKEN_BACK).outcome is None, (
        "it may still bring its record home"
    )
    gone = replace(TAKEN_BACK, gone="2026-01-02T10:01:00+00:00")
    assert decide_outcome(Try(number=1), None, gone).outcome is Outcome.CANCELLED


def test_an_error_state_of_the_queue_may_be_cleared() -> None:
    verdict = decide_outcome(None, accounted(Outcome.QUEUE_ERROR, ended=False))
    assert (verdict.outcome, verdict.provisional) == (Outcome.QUEUE_ERROR, True)


def test_a_record_that_cannot_be_read_is_not_still_to_come() -> None:
    verdict = decide_outcome(Try(number=1, problem="record.json: not JSON"))
    assert verdict.outcome is Outcome.LOST
    assert verdict.evidence.startswith("record.json: not JSON; ")


def test_a_job_that_could_not_write_at_home_says_so_by_its_status() -> None:
    for tried in (None, Try(number=1)):
        verdict = decide_outcome(tried, accounted(None, status=NO_HOME))
        assert verdict.outcome is Outcome.STAGE_OUT
        assert verdict.evidence == "the job could not write in the run folder (State WORDS)"


def test_nobody_says_why_a_job_script_was_killed_outright() -> None:
    verdict = decide_outcome(with_exit(status=137, signal="KILL", message="the job script was killed"))
    assert (verdict.outcome, verdict.provisional) == (Outcome.LOST, True)
    assert "the job script was killed" in verdict.evidence
    told = decide_outcome(with_exit(status=137, signal="KILL"), accounted(None, status=137))
    assert told.outcome is Outcome.LOST
    assert told.evidence.endswith("; accounting: State WORDS")
    assert (
        decide_outcome(with_exit(status=137, signal="KILL"), accounted(Outcome.RAM_OOM)).outcome
        is Outcome.RAM_OOM
    )


def test_a_result_needs_no_word_of_a_task_that_began_again() -> None:
    again = TaskFacts(requeued=True)
    assert decide_outcome(Try(number=1, record=FULL), None, again).evidence == "by its record"
    assert decide_outcome(Try(number=1, record=CUT), None, again).evidence.endswith(
        "; the scheduler began the task again"
    )


def known() -> st.SearchStrategy[TaskFacts]:
    words = st.sampled_from(["", "2026-01-02T10:00:00+00:00"])
    return st.builds(TaskFacts, gone=words, cancelled=words, packed=st.booleans(), superseded=st.booleans())


TOLD = (
    st.none()
    | st.builds(accounted, st.sampled_from([*Outcome, None]))
    | st.builds(accounted, st.sampled_from([Outcome.QUEUE_ERROR, None]), ended=st.just(False))  # noqa: FBT003 - hypothesis's
)
LEFT = st.sampled_from([Try(number=1, record=FULL), with_exit(stage="stage_in"), with_exit(status=7)])


@given(LEFT, TOLD, known())
def test_what_is_home_is_not_unsaid_by_what_is_known_besides(
    tried: Try, told: Accounted | None, besides: TaskFacts
) -> None:
    assert decide_outcome(tried, told, besides) == decide_outcome(tried, told)


@given(st.sampled_from([None, Try(number=1)]), TOLD, known())
def test_nothing_is_called_over_without_a_reason(
    tried: Try | None, told: Accounted | None, besides: TaskFacts
) -> None:
    verdict = decide_outcome(tried, told, besides)
    heard = told is not None and (told.ended or told.outcome is not None)
    reasons = heard or besides.gone or besides.superseded or (tried is None and besides.cancelled)
    assert (verdict.outcome is not None) == bool(reasons)
    assert verdict.outcome is not Outcome.OK
    assert verdict.evidence


def test_what_is_gone_without_a_trace_is_lost_as_far_as_one_knows() -> None:
    gone = TaskFacts(gone="eleven")
    for tried in (None, Try(number=1)):
        verdict = decide_outcome(tried, None, gone)
        assert (verdict.outcome, verdict.provisional) == (Outcome.LOST, True)
        assert "not in the queue since eleven" in verdict.evidence
        assert decide_outcome(tried, accounted(Outcome.TIMEOUT), gone).outcome is Outcome.TIMEOUT
    assert decide_outcome(with_exit(stage="stage_in"), None, gone).outcome is Outcome.STAGE_IN


def test_of_a_driver_here_that_is_gone_only_what_had_begun_is_lost() -> None:
    gone = TaskFacts(gone="2026-01-02T10:15:00+00:00", here=True)
    assert decide_outcome(None, None, gone).outcome is None
    begun = decide_outcome(Try(number=1), None, gone)
    assert (begun.outcome, "queue" in begun.evidence) == (Outcome.LOST, False)
    assert decide_outcome(None, None, replace(gone, here=False)).outcome is Outcome.LOST


def test_a_try_that_others_followed_is_over() -> None:
    verdict = decide_outcome(Try(number=1), None, TaskFacts(superseded=True))
    assert (verdict.outcome, verdict.provisional) == (Outcome.LOST, False)
    assert verdict.evidence == "it was run again, and nothing reports how this try ended"
