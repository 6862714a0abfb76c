from __future__ import annotations

from functools import partial

from jobkit.core.shell import Completed
from jobkit.schedulers.slurm_survey import parse_survey, partitions, survey_argvs
from tests.support import surveys
from tests.support.surveys import captured

FILES = surveys.FILES["slurm"]
answers = partial(surveys.answers_of, "slurm")


def test_what_is_asked_is_what_was_captured() -> None:
    up = answers("lab")
    asked = survey_argvs(up)

    assert set(asked) == {*FILES, "states"}
    assert asked["states"] == captured("slurm/sinfo-down").argv, "the nodes of the other site never come"
    for name in set(FILES) - {"partitions", "accounts"}:
        assert asked[name] == up[name].argv
    assert up["partitions"].argv == ("as_user", *asked["partitions"])


def test_a_controller_that_is_down_is_asked_no_more() -> None:
    first = survey_argvs({})
    assert set(first) == {"version", "controller"}

    down = {"version": captured("slurm/lab-version"), "controller": captured("slurm/down-ping")}
    assert survey_argvs(down) == first

    survey = parse_survey(down)
    assert survey.trouble.startswith("Slurmctld(primary) at ")
    assert (survey.version, survey.queues, survey.accounts) == ("22.05.8", None, None)
    assert survey.keeping.works is None


def test_a_site_with_partitions_of_every_kind() -> None:
    survey = parse_survey(answers("other"))

    known = {queue.name: queue for queue in survey.queues or ()}
    gpu = known["gpu"]
    assert gpu.gpus == {"v100": 2, "a100": 4, "a100_3g.20gb": 2}
    assert (gpu.nodes, gpu.cpus, gpu.memory_bytes) == (5, 96, 1031000 * 2**20)
    assert gpu.walltime_s == 36 * 3600
    assert (known["long"].walltime_s, known["long"].whom) == (None, "account staff,phd")
    assert {name: queue.closed for name, queue in known.items() if queue.closed} == {
        "bought": "it is hidden from you",
        "secret": "it is hidden from you",
        "old": "it is down",
        "admin": "only root may use it",
    }
    assert survey.keeping.works is False
    assert "accounting_storage/none" in survey.keeping.said
    assert survey.accounts is None
    blind = answers("other")
    del blind["partitions"]
    closed = {queue.name for queue in parse_survey(blind).queues or () if queue.closed}
    assert closed == {"old"}, "without scontrol nothing is known of access"


def test_a_database_that_is_down() -> None:
    down = {name: captured(f"slurm/nodbd-{name}") for name in ("sacct", "accounts")}
    survey = parse_survey(answers("lab") | down)

    assert survey.keeping.works is False
    assert survey.keeping.said == (
        "does not answer: sacct: error: Problem talking to the database: Connection refused"
    )
    assert survey.accounts is None
    assert set(survey.silent) == {"sacct", "accounts"}


def test_a_site_where_jobs_must_be_charged() -> None:
    strict, key = answers("lab"), "AccountingStorageEnforce = "
    text = strict["config"].stdout.replace(f"{key}none", f"{key}associations,limits,qos")
    strict["config"] = Completed(("scontrol",), 0, text, "")
    strict["accounts"] = Completed(("sacctmgr",), 0, "nlp|nlp\nnlp|staff\n", "")
    survey = parse_survey(strict)

    assert survey.must_charge
    assert (survey.accounts, survey.account) == (("nlp", "staff"), "nlp")


def test_rows_of_one_partition_are_added_up_and_a_number_that_is_not_exact_is_unknown() -> None:
    big = "big|1:00:00|gpu:2|up|3|8|1\nbig|1:00:00|(null)|up|4|8|1"
    known = partitions(f"all*|infinite|(null)|up|12|8+|8000+\n{big}")
    found = [(queue.name, queue.nodes, queue.gpus) for queue in known.values()]
    assert found == [("all", 12, {}), ("big", 7, {"": 2})]
    assert (known["all"].cpus, known["all"].memory_bytes) == (None, None)
    assert parse_survey({"version": Completed(("sinfo",), 0, "", "")}).version == ""
