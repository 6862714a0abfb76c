"""The nouns of jobkit: point, batch, job, record, outcome.

A sweep has points. A point is one setting of the knobs, once. A **try** is one execution of a point: a
point that fails or is resumed has several, and each leaves at most one record. A **trial** is a point that
tests a prediction of memory (``find_max``, ``jobkit verify``); it has tries like every other point.

Standard library only: the compute node imports this module.
Bytes and seconds; a value that could not be read is ``None``, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from jobkit.core.errors import hide_secrets
from jobkit.core.frozen import keyed
from jobkit.core.json_codec import SCHEMA
from jobkit.core.knobs import (
    AUTO,
    AUTOMATIC,
    DEFAULT_WORK_UNIT,
    EVERY,
    EXACT,
    LOAD_KNOBS,
    MPS,
    OFF,
    OFFERED,
    ON,
    ORDER,
    REFUSED,
    RENAMED,
    RUN_KNOBS,
    SHORTCUTS,
    Value,
    numbers,
    renamed,
)
from jobkit.core.measurements import (
    Energy,
    Gpu,
    MemoryReadings,
    Metric,
    Need,
    Sampler,
    Share,
    ShortcutCheck,
    Summary,
)

if TYPE_CHECKING:
    from jobkit.core.figures import Figure


class Outcome(StrEnum):
    """How a try ended, in one word; docs/contracts.md explains each."""

    OK = "ok"
    GPU_OOM = "gpu_oom"
    RAM_OOM = "ram_oom"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    NODE_FAIL = "node_fail"
    QUEUE_ERROR = "queue_error"
    DEPENDENCY = "dependency"
    GPU_BUSY = "gpu_busy"
    NO_GPU = "no_gpu"
    ENVIRONMENT = "environment"
    SCRATCH_FULL = "scratch_full"
    STAGE_IN = "stage_in"
    STAGE_OUT = "stage_out"
    MODEL_MISSING = "model_missing"
    PRUNED = "pruned"
    STOPPED = "stopped"
    BUG = "bug"
    LOST = "lost"


RESULTS = frozenset({Outcome.OK, Outcome.GPU_OOM, Outcome.PRUNED})
"""Outcomes that answer the question of the point; every other outcome is a failure."""


STANZA, FOLDER = "stanza", "folder"
"""The kinds of model folders."""
FULL = "full"
"""The size of a real model, and of a stand-in with its dimensions."""


@keyed
class TextRef:
    """The text that a point reads.

    Attributes
    ----------
    path
        Absolute, as the nodes see it.
    sha256, size_bytes
        Of the file.
    name
        The name in the spec (``sample``, a path, an address), and what was drawn.
    """

    path: str
    sha256: str
    size_bytes: int
    name: str

    def __post_init__(self) -> None:
        """Hide secrets in the name, also of an earlier version: records, tables and pages have it."""
        object.__setattr__(self, "name", hide_secrets(self.name))


@keyed
class FileRef:
    """A file of the user's, or a folder, that travels with the run.

    Attributes
    ----------
    path
        From which the run folder gets its copy, absolute.
    name
        In the run folder's ``files/``, and on the node; of a folder it ends with a slash.
    sha256, size_bytes
        Of the file when the run was planned; of a folder as `jobkit.core.files.digest` has them.
    """

    path: str
    name: str
    sha256: str
    size_bytes: int


@keyed
class Command:
    """A program that a point runs, as the spec has it.

    Attributes
    ----------
    template
        The command with its placeholders.
    shell
        Whether a shell reads it.
    metrics
        By name the regular expression, with one group, that finds a metric in the output.
    """

    template: str
    shell: bool = False
    metrics: Mapping[str, str] = field(default_factory=dict)


MODEL_OPTIONS: Mapping[str, str | bool | None] = {"pooling": "", "trust_remote_code": False, "prompt": None}
"""What a spec asks for besides the folder, with what it is if the spec is silent."""


@keyed
class ModelRef:
    """The model that a point loads.

    Attributes
    ----------
    path
        A folder that the framework can load with no network, absolute.
    name, size
        As in the spec: ``en``, ``full`` or ``tiny``.
    stand_in
        Whether it is jobkit's stand-in instead of the model that the name promises.
    kind
        ``stanza``: a folder in Stanza's layout; ``folder``: all files of the folder are the model.
    architecture
        Of a stand-in whose weights are random and not trained, the name of its architecture; else empty.
    prompt
        What stands before each text: the name of one of its prompts, or the prompt itself; ``None`` for the
        model's own.
    fingerprint
        A hash over its files, so that two models never share a row.
    size_bytes
        The sum over its files.
    pooling, trust_remote_code
        As in the spec; both are a part of the fingerprint.
    """

    path: str
    name: str
    size: str
    stand_in: bool
    fingerprint: str
    size_bytes: int
    kind: str = STANZA
    architecture: str = ""
    pooling: str = ""
    trust_remote_code: bool = False
    prompt: str | None = None

    @property
    def options(self) -> dict[str, str | int]:
        """What the spec asks for besides the folder, for the workload's `load`."""
        return {key: value for key, usual in MODEL_OPTIONS.items() if (value := getattr(self, key)) != usual}

    @property
    def title(self) -> str:
        """Its name, with the size if that is part of it, and its options."""
        name = self.name if self.kind == FOLDER else f"{self.name} {self.size}"
        return ", ".join([name, *(f"{key} {value!r}" for key, value in self.options.items())])

    @property
    def caveat(self) -> str:
        """What it is if it is not the model that its name promises; else empty."""
        if self.architecture:
            return f"RANDOM weights, architecture {self.architecture}"
        return "STAND-IN model" if self.stand_in else ""

    @property
    def label(self) -> str:
        """The caveat, with the model that it replaces; empty for a real model."""
        return f"{self.caveat}, in place of {self.title}" if self.caveat else ""

    @property
    def warning(self) -> str:
        """The label with what follows from it, as a line for a person; empty for a real model."""
        return f"warning: {self.label}: its results are not those of {self.name}" if self.caveat else ""


def described(model: ModelRef | None) -> dict[str, object]:
    """Return a model, and its caveat, as the JSON of commands has them."""
    return {
        "model": model.title if model else None,
        "stand_in": bool(model and model.stand_in),
        "caveat": model.caveat if model else "",
    }


@keyed
class PointKind:
    """What a point is for: each room asks it, and none asks which kind it is.

    Attributes
    ----------
    noun
        What a person calls such a point.
    swept
        Whether it is part of the sweep: only such points are in means and lines.
    main
        Whether it does what the run is for: no test of a prediction, and not profiled.
    tabled
        Whether tables list it.
    answers
        The outcomes that answer what it asks.
    missed
        Whether the run lacks something if it is cancelled.
    own_task
        Whether it has a task of its own; the job of a search runs many points.
    from_text
        Whether it works through the text of the spec, whose lengths are known.
    promised
        Whether its time was promised: then it fails if it cannot work as measured, rather than work slower.
    replanned
        Whether its ``repeat`` is the number of the plan that made it, and a later plan may replace it.
    quarantines
        Whether a paragraph that no process can take is left out, and the try goes on.
    measures_need
        Whether the memory that its heaviest batches need is measured after the work.
    stands
        Whether its processes may do the next point: only its speed is used, and no memory.
    extension
        The name in `jobkit.core.extensions` of what reads its tries and does its work; else empty.
    """

    noun: str = "point"
    swept: bool = True
    main: bool = True
    tabled: bool = True
    answers: frozenset[Outcome] = RESULTS
    missed: bool = True
    own_task: bool = True
    from_text: bool = True
    promised: bool = False
    replanned: bool = False
    quarantines: bool = False
    measures_need: bool = True
    stands: bool = False
    extension: str = ""


SWEPT = PointKind()
TRIAL = PointKind(swept=False, main=False, answers=RESULTS | {Outcome.RAM_OOM}, missed=False, own_task=False)
PROFILED = PointKind(swept=False, main=False, tabled=False, measures_need=False, extension="profile")
SEARCHED = PointKind(own_task=False, extension="tune")
TIMED = replace(SEARCHED, measures_need=False, stands=True)
SHARD = PointKind(
    noun="shard",
    swept=False,
    answers=frozenset({Outcome.OK}),
    from_text=False,
    promised=True,
    replanned=True,
    quarantines=True,
    measures_need=False,
    extension="corpus",
)


@keyed
class Point:
    """One setting of the knobs, once: a task of the array job.

    Attributes
    ----------
    index
        From 1; line ``index`` of ``points.jsonl``.
    point_id
        The name of its folder under ``results/``, unique within the run.
    params
        The swept knobs and their values (``{"batch_size": 50, "order": "text"}``).
    repeat
        From 1.
    device
        ``cpu`` or ``cuda``; a try never falls back to the other.
    order
        ``load``: largest load first; ``text``: in text order; ``sorted``: paragraphs by their longest
        sentence before they are cut into calls, and sentences by length within a call.
    sort_window
        Paragraphs that are sorted together; ``None`` for the whole text.
    work_unit
        Paragraphs of one call if ``padded`` caps the load of a batch.
    every
        Of so many paragraphs it works on one: the first, and so on; 1 for the whole text.
    allocator
        The value of ``PYTORCH_ALLOC_CONF``, or ``None`` for PyTorch's default.
    threads
        CPU threads for the framework, in each worker.
    workers
        Processes that share each GPU of the point, or the CPU.
    gpus
        GPUs of the point, each with ``workers`` processes; on a CPU it is 1.
    mps
        Whether the workers share each GPU through a daemon of NVIDIA's MPS: ``off``, ``on``, or ``auto``
        (if several workers share a GPU and nothing forbids it).
    precision
        The format of numbers in which the workload computes; ``None`` if the workload does not offer a
        choice (or in a run of an earlier version): then it is the framework's own.
    shortcuts
        Whether the workload may leave out work that changes no result: ``off`` or ``exact``; ``None`` as for
        ``precision``.
    trim
        Whether the entities have no blanks at their ends, which tokenizers of bytes put there.
    fork
        Whether processes that work may be forked from one that has imported the framework.
    hang_s
        With several processes, the try ends if a batch takes longer than this and than 20 times the
        longest batch so far.
    nan
        What is done about a paragraph whose rows have NaN or infinity: ``quarantine``; ``None`` for null.
    load_knobs
        The knobs with which the load of a batch grows.
    cap_bytes
        Limit of what torch's allocator may reserve, the CUDA context on top; ``None`` for no limit.
    trial
        Whether it tests a prediction of memory. A trial is not part of the sweep: no speed and no
        line is derived from it.
    profile
        The profiler of its work: ``torch`` or ``python``; else ``off``. A point with a
        profiler is not part of the sweep: it is in no table, no mean and no line.
    phase
        Of a run of ``jobkit tune``, the part of the search that it belongs to: ``memory``, ``search`` or
        ``final``; empty in a sweep.
    shard
        Whether it works through a part of the corpus of ``jobkit apply`` (its line of ``plan.jsonl``) and not
        through ``text``. A shard is not part of a sweep.
    workload_folder
        The spec's folder, absolute, if the workload is the user's own; ``None`` for a shipped workload.
    files
        The user's files of which the workload consists, if a file names it; of a command those of the spec.
    command
        The command that the point runs; then ``workload`` is its text. ``None`` for any other workload.
    """

    schema: int = SCHEMA
    run_id: str
    index: int
    point_id: str
    workload: str
    params: Mapping[str, Value]
    repeat: int
    text: TextRef
    model: ModelRef | None
    device: str
    order: str
    sort_window: int | None = None
    work_unit: int = DEFAULT_WORK_UNIT
    every: int = 1
    allocator: str | None
    threads: int
    workers: int = 1
    gpus: int = 1
    mps: str = OFF
    precision: str | None = None
    shortcuts: str | None = None
    trim: bool = False
    fork: bool = False
    hang_s: int = 60
    nan: str | None = "quarantine"
    load_knobs: tuple[str, ...] = LOAD_KNOBS
    cap_bytes: int | None = None
    trial: bool = False
    profile: str = OFF
    phase: str = ""
    shard: bool = False
    workload_folder: str | None = None
    files: tuple[FileRef, ...] = ()
    command: Command | None = None

    def __post_init__(self) -> None:
        """Take the knobs of earlier versions by their names of today."""
        if not self.command and not RENAMED.keys().isdisjoint((*self.params, *self.load_knobs)):
            object.__setattr__(self, "params", renamed(self.params))
            object.__setattr__(self, "load_knobs", tuple(RENAMED.get(name, name) for name in self.load_knobs))

    @property
    def numbers(self) -> Mapping[str, int]:
        """The knobs of ``params`` whose values are whole numbers."""
        return numbers(self.params)

    @property
    def kind(self) -> PointKind:
        """What it is for, by the fields that say so: the one place that reads them."""
        if self.shard:
            return SHARD
        if self.profile != OFF:
            return PROFILED
        if self.trial:
            return TRIAL
        return {"": SWEPT, "memory": SEARCHED}.get(self.phase, TIMED)  # in others only the speed is used

    @property
    def loaded(self) -> Point | None:
        """What its processes load, without what they can change; ``None`` if they do no other point."""
        if not self.kind.stands or self.command:
            return None
        free = (*self.load_knobs, EVERY, ORDER)
        params = {knob: value for knob, value in self.params.items() if knob not in free}
        return replace(self, params=params, index=0, point_id="", repeat=0, phase="", every=1, order="")

    def at(self, params: Mapping[str, Value]) -> Point:
        """Return the point with another setting; some knobs have fields of their names."""
        own: dict[str, Any] = {knob.name: params[knob.name] for knob in RUN_KNOBS if knob.name in params}
        own |= {key: value for key in OFFERED if isinstance(value := params.get(key), str)}
        return replace(self, params=params, **own)


@keyed
class Batch:
    """One call of the workload: a line of ``batches.jsonl``.

    Attributes
    ----------
    index
        In order of work, from 0; with several workers in the order of their ends.
    first_item
        Number of its first paragraph in the text, from 0.
    items, sentences, tokens, characters
        Its size; characters as read.
    longest_sentence_chars
        Length of its longest sentence as the framework sees it.
    worker
        Number of the process that did it, from 0.
    load
        The padded size: for Stanza NER the largest, over the NER batches of this
        call, of sentences x characters of the longest; else the workload's own.
    padded_chars
        The sum of the same products; characters / padded_chars is the padding efficiency.
    seconds
        Wall time; the device is synchronised before and after.
    allocated_peak_bytes, reserved_peak_bytes
        Peaks of torch's allocator, reset before the batch.
    alloc_retries
        How often the allocator emptied its cache and tried again during the batch.
    batches_total, characters_total
        The size of the whole try, so that a reader of the file knows how far it is.
    """

    index: int
    first_item: int
    items: int
    worker: int = 0
    sentences: int | None = None
    tokens: int | None = None
    characters: int
    longest_sentence_chars: int | None = None
    load: int
    padded_chars: int | None = None
    seconds: float
    allocated_peak_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    alloc_retries: int | None = None
    batches_total: int | None = None
    characters_total: int | None = None


@keyed
class JobFacts:
    """The job that ran a try, as the scheduler names it.

    Attributes
    ----------
    scheduler
        ``slurm``, ``sge``, ``local``, or ``hand`` if a person typed ``bash job.sh K``.
    job_id, task_id
        The scheduler's ids; empty by hand.
    restart
        How often the scheduler had started this task before.
    """

    scheduler: str
    job_id: str = ""
    task_id: str = ""
    restart: int = 0


@keyed
class Record:
    """All that one try measured: ``record.json``, written once, atomically.

    Attributes
    ----------
    outcome
        One word; after a signal, or if a worker was killed outright, it is provisional, and only the
        scheduler's accounting may overrule it.
    message
        The error in one line; empty if the try succeeded.
    hung
        Whether the try ended as ``timeout`` because a batch hung, and not because of the walltime.
    signal
        The signal that ended the work (``USR1`` is the walltime warning), else ``None``.
    effective
        The value of every knob inside the framework; ``None`` if it could not be read.
    inert
        Swept knobs that did not take effect.
    versions
        Of Python, jobkit, and the frameworks that the workload uses.
    energy
        Of the GPUs over the work; ``None`` on a CPU, and in records of earlier versions.
    forked
        Whether the processes that worked were forked from one that had imported the framework.
    standing
        Whether the processes that worked had loaded the model for an earlier point. Then import and loading
        took no time, and its memory is in no line and no bound.
    import_s
        Seconds from the start or the fork of the process until the framework was imported, and the seconds
        that the try waited for another process to import it; of several workers the longest.
    memory_wait_s
        Seconds that the try waited for the memory of its GPUs to be back at the baseline, before it
        opened them; ``None`` without a GPU, or if NVML does not report which GPUs it has.
    load_s, warm_up_s
        Seconds to load the model and to warm up; of several workers the longest.
    needs
        Of the heaviest batches, on a GPU; the largest load first.
    failed_load
        The load of the batch that ran out of memory, if the workload reports it; else ``None``.
    retries
        How often the allocator emptied its cache and tried again during the batches.
    workers
        What each process did, if there were several; then ``memory`` holds the largest of each figure
        of one process, and of NVML and of the resident memory the sum over all.
    mps
        What ran: ``on``, ``off``, or ``off: `` and what forbade NVIDIA's MPS.
    metrics
        By name the figures that the workload itself reports.
    metrics_bad_lines
        Lines of the file of these figures that could not be read.
    copier
        The program that copied inputs and results: ``rsync``, or ``cp`` on a node without it. Empty if the
        template has its own copy, and in records of earlier versions.
    cpu_s
        CPU seconds from ``started_at`` to ``ended_at``, of all its processes that have ended and of its own;
        ``None`` in records of earlier versions.
    notes
        What may put the figures in doubt, a line each.
    limits
        The soft limits of the worker (``ulimit -S``); one that is absent is infinite.
    check
        The process that compared the shortcuts with the ordinary way; ``None`` without shortcuts. Its memory
        is in no other figure.
    task_s
        Seconds from the begin of the job script to its end. The worker cannot know them: whoever reads the
        try adds them (`jobkit.runs.tries.timed`).
    accounted_rss_bytes
        The most RAM by the accounting of a job that ran this try alone; added alike.
    started_at, ended_at
        UTC, ISO 8601.
    """

    schema: int = SCHEMA
    point: Point
    try_number: int
    outcome: Outcome
    provisional: bool = False
    message: str = ""
    hung: bool = False
    signal: str | None = None
    job: JobFacts
    host: str
    started_at: str
    ended_at: str
    effective: Mapping[str, Value | None] = field(default_factory=dict)
    inert: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    gpu: Gpu | None = None
    memory: MemoryReadings = field(default_factory=MemoryReadings)
    sampler: Sampler | None = None
    energy: Energy | None = None
    summary: Summary | None = None
    forked: bool = False
    standing: bool = False
    import_s: float | None = None
    memory_wait_s: float | None = None
    load_s: float | None = None
    warm_up_s: float | None = None
    needs: tuple[Need, ...] = ()
    failed_load: int | None = None
    retries: int | None = None
    workers: tuple[Share, ...] = ()
    mps: str = OFF
    environment: Mapping[str, str] = field(default_factory=dict)
    metrics: dict[str, Metric] = field(default_factory=dict)
    metrics_bad_lines: int = 0
    copier: str = ""
    cpu_s: float | None = None
    check: ShortcutCheck | None = None
    notes: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    task_s: float | None = None
    accounted_rss_bytes: int | None = None

    def ran(self, name: str) -> str | None:
        """Return what ran of one of `REPORTED`, ``off: `` and the reason if it was refused.

        Of what nothing reports, what the point asks for.
        """
        ran = self.mps if name == MPS else self.effective.get(name)
        return str(ran) if ran else getattr(self.point, name)

    @property
    def params(self) -> Mapping[str, Value]:
        """The knobs of its setting; with shortcuts that were refused it is a setting of its own."""
        refused = self.point.shortcuts == EXACT and self.ran(SHORTCUTS) != EXACT
        return {**self.point.params, SHORTCUTS: REFUSED} if refused else self.point.params

    @property
    def decided(self) -> dict[str, Value]:
        """Its setting, with ``on`` in place of ``auto`` where that ran."""
        return {
            name: ON if value == AUTO and name in AUTOMATIC and self.ran(name) == ON else value
            for name, value in self.params.items()
        }

    def value(self, figure: Figure) -> float | None:
        """Return a figure of the try; ``None`` if it is not known."""
        return figure.read(self)
