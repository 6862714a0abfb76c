"""A practice Grid Engine: a master and one host, with the complexes and queues that sites have."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from jobkit.core.shell import check
from jobkit.practice.daemons import Daemon, wait_for
from jobkit.practice.packages import GRID_ENGINE, search_path
from jobkit.practice.place import Place, start_over, user

PROGRAMS = Path(GRID_ENGINE)
SHARED = Path("/usr/share/gridengine")
FIRST_GROUP, GROUPS = 1_900_000_000, 100  # systemd's list of groups (uids-gids) has none there
SLOTS, GPUS = 8, 2  # slots of each queue, and fake GPUs of the host
QUEUES = "gpu.q", "serial.q"
HOST = "localhost"

BOOTSTRAP = """\
admin_user              {user}
default_domain          none
ignore_fqdn             false
spooling_method         classic
spooling_lib            libspoolc
spooling_params         {cell}/common;{spool}/qmaster
binary_path             {root}/bin
qmaster_spool_dir       {spool}/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
"""


def queue(name: str, folder: Path, **changes: str) -> dict[str, str]:
    """Return the configuration of a queue: queue_conf(5)."""
    empty = (
        "ckpt_list prolog epilog starter_method suspend_method resume_method terminate_method owner_list"
        " user_lists xuser_lists subordinate_list complex_values projects xprojects calendar load_thresholds"
        " suspend_thresholds"
    )
    limits = "rt cpu fsize data stack core rss vmem"
    return {
        "qname": name,
        "hostlist": HOST,
        "seq_no": "0",
        "nsuspend": "1",
        "suspend_interval": "00:05:00",
        "priority": "0",
        "min_cpu_interval": "00:05:00",
        "processors": "UNDEFINED",
        "qtype": "BATCH INTERACTIVE",
        "pe_list": "smp",
        "rerun": "FALSE",
        "slots": str(SLOTS),
        "tmpdir": str(folder / "tmp"),
        "shell": "/bin/bash",
        "shell_start_mode": "unix_behavior",
        "notify": "00:00:10",
        "initial_state": "default",
        **dict.fromkeys(empty.split(), "NONE"),
        **{f"{kind}_{limit}": "INFINITY" for limit in limits.split() for kind in ("s", "h")},
        **changes,
    }


def prepare(place: Place) -> None:
    folder, cell, spool = place.folder, place.folder / "default", place.folder / "spool"
    bootstrap = cell / "common" / "bootstrap"
    if bootstrap.exists():
        return
    start_over(place)
    for name in ("qmaster/job_scripts", "execd"):
        (spool / name).mkdir(parents=True, exist_ok=True)
    (cell / "common").mkdir(parents=True, exist_ok=True)
    (folder / "util").symlink_to(SHARED / "util")
    for name in ("bin", "lib", "utilbin"):  # where programs are, by architecture
        (folder / name).mkdir(exist_ok=True)
        for architecture in ("lx-amd64", "lx-arm64"):
            (folder / name / architecture).symlink_to(PROGRAMS)
    of_loopback = socket.gethostbyaddr("127.0.0.1")[1]  # its other names in this machine's file of hosts
    aliases = dict.fromkeys((HOST, socket.gethostname(), *of_loopback))
    (cell / "common" / "host_aliases").write_text(" ".join(aliases) + "\n", encoding="utf-8")
    (cell / "common" / "act_qmaster").write_text(f"{HOST}\n", encoding="utf-8")
    _fill_spool(place)


def _fill_spool(place: Place) -> None:
    """Do as the package's own init_cluster does; the bootstrap file, written last, says that it is done."""
    folder, spool = place.folder, place.folder / "spool"
    common = place.folder / "default" / "common"
    text = BOOTSTRAP.format(user=user(), root=folder, cell=folder / "default", spool=spool)
    defaults = (SHARED / "default-configuration").read_text(encoding="utf-8")
    changes = {
        "min_uid": "0",
        "min_gid": "0",
        "reporting_params": "accounting=true reporting=false flush_time=00:00:01 joblog=false"
        " accounting_flush_time=00:00:01",
        "load_report_time": "00:00:02",
        "execd_params": "INHERIT_ENV=true",
        "execd_spool_dir": str(spool / "execd"),
        "gid_range": _groups(place),
    }  # root may submit; what happens is written at once; a job's qsub finds the master
    settings = changed(defaults, changes)
    part, configuration = common / "bootstrap", folder / "run" / "configuration"
    configuration.write_text(settings, encoding="utf-8")
    part.write_text(text, encoding="utf-8")
    parameters = f"{folder}/default/common;{spool}/qmaster"
    try:
        for argv in (
            ("spoolinit", "classic", "libspoolc", parameters, "init"),
            ("spooldefaults", "configuration", str(configuration)),
            ("spooldefaults", "complexes", str(SHARED / "util" / "resources" / "centry")),
            ("spooldefaults", "usersets", str(SHARED / "util" / "resources" / "usersets")),
            ("spooldefaults", "managers", user()),
        ):
            check(place.ask(str(PROGRAMS / argv[0]), *argv[1:]), "Grid Engine cannot make its spool folder")
    except BaseException:
        part.unlink()
        raise


def _groups(place: Place) -> str:
    """Return the groups that mark the processes of a job, none of them another cluster's.

    Grid Engine takes the memory of all processes of a group for its job's: with the package's own groups in
    two clusters a job of one is killed for the memory that a job of the other uses.
    """
    first = FIRST_GROUP + GROUPS * place.ports[0]
    lines = Path("/proc/self/gid_map").read_text(encoding="ascii").splitlines()  # in a container: 65,536
    spans = [(int(begin), int(count)) for begin, _, count in map(str.split, lines)]
    has = any(begin <= first and first + GROUPS <= begin + count for begin, count in spans)
    return f"{first}-{first + GROUPS - 1}" if has else "65400-65500"


def changed(text: str, changes: Mapping[str, str]) -> str:
    lines = text.replace("\\\n", " ").splitlines()
    kept = [line for line in lines if line.partition(" ")[0] not in changes and not line.startswith("#")]
    return "\n".join([*kept, *(f"{key} {value}" for key, value in changes.items())]) + "\n"


def daemons(place: Place) -> tuple[Daemon, ...]:
    """Return the daemons in the order in which they start; SGE_ND keeps them in the foreground."""
    variables = {**place.variables, "PATH": search_path(), "SGE_ND": "1"}
    argvs = {"qmaster": ("/usr/sbin/sge_qmaster",), "execd": ("/usr/sbin/sge_execd",)}
    return tuple(Daemon(name, argv, place.folder, variables) for name, argv in argvs.items())


def after(place: Place, daemon: Daemon) -> None:
    if daemon.name != "qmaster":
        return
    wait_for(lambda: place.ask("qconf", "-sm").ok, f"the master answers; see {daemon.log}")
    if HOST in place.ask("qconf", "-ss").stdout.split():
        return
    complexes = (
        "ngpus ngpus INT <= YES YES 0 0\n"
        "ncpus ncpus INT <= YES NO 0 0\n"
        "exclusive excl BOOL EXCL YES YES 0 1000\n"
    )
    put(place, "-Mc", place.ask("qconf", "-sc").stdout + complexes)
    schedule = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}
    put(place, "-Msconf", changed(place.ask("qconf", "-ssconf").stdout, schedule))
    empty = "load_scaling user_lists xuser_lists projects xprojects usage_scaling report_variables"
    execution_host = {
        "hostname": HOST,
        "complex_values": f"ngpus={GPUS},ncpus={SLOTS},exclusive=true",
        **dict.fromkeys(empty.split(), "NONE"),
    }
    put(place, "-Ae", lines(execution_host))
    parallel = {
        "pe_name": "smp",
        "slots": "999",
        "allocation_rule": "$pe_slots",
        "control_slaves": "TRUE",
        "job_is_first_task": "TRUE",
        "urgency_slots": "min",
        "accounting_summary": "FALSE",
        **dict.fromkeys(
            ("user_lists", "xuser_lists", "start_proc_args", "stop_proc_args", "qsort_args"), "NONE"
        ),
    }
    put(place, "-Ap", lines(parallel))
    for name in QUEUES:
        put(place, "-Aq", lines(queue(name, place.folder)))
    check(place.ask("qconf", "-as", HOST), "Grid Engine refuses its submit host")


def put(place: Place, option: str, text: str, name: str = "put") -> None:
    """Give the master a configuration, which it reads from a file; of ``-Mconf`` the name matters."""
    file = place.folder / "run" / name
    file.write_text(text, encoding="utf-8")
    try:
        check(place.ask("qconf", option, str(file)), "Grid Engine refuses a configuration")
    finally:
        file.unlink()


def lines(settings: Mapping[str, str]) -> str:
    return "".join(f"{key} {value}\n" for key, value in settings.items())


def states(place: Place) -> dict[str, str]:
    """Return the state of every queue; ``-NA-`` if the master does not hear from its host."""
    listed = [line.split() for line in place.ask("qstat", "-f").stdout.splitlines() if "@" in line]
    heard = {words[0]: "-NA-" if words[3] == "-NA-" else "" for words in listed}
    return {words[0]: "".join(words[5:]) or heard[words[0]] for words in listed}


def job_states(place: Place) -> list[str]:
    """Return the state of every job; ``t`` is one that was sent to the host and has not started yet."""
    return [line.split()[4] for line in place.ask("qstat", "-u", "*").stdout.splitlines()[2:]]


def heal(place: Place) -> None:
    if any("E" in state for state in states(place).values()):
        place.ask("qmod", "-cq", "*")


def takes_jobs(place: Place) -> bool:
    """Return whether the master answers and its queues know the load of the host."""
    known = states(place)
    return len(known) >= len(QUEUES) and not any(known.values())


def end_jobs(place: Place) -> None:
    place.ask("qdel", "-f", "-u", "*")
    wait_for(lambda: not place.ask("qstat", "-u", "*").stdout.strip(), "the jobs end", 15)


def summary(place: Place) -> str:
    return place.ask("qstat", "-f").stdout.rstrip()
