"""A practice Slurm: munge, MariaDB, slurmdbd, slurmctld, and two nodes with two fake GPUs each."""

from __future__ import annotations

import hashlib
import re
import secrets
import socket
from pathlib import Path

from jobkit.core.errors import JobkitError
from jobkit.core.files import write_atomically
from jobkit.core.shell import check
from jobkit.practice.daemons import Daemon, wait_for
from jobkit.practice.packages import search_path
from jobkit.practice.place import Place, start_over, user

NODES = "n1", "n2"
GPUS, CPUS, MEMORY_MB = 2, 8, 8000  # of each node; the nodes share this machine
SQL = Path("/usr/share/mysql/mysql_system_tables.sql")

CONF = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={run}/munge.sock
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={run}/slurmctld.its
SlurmdPidFile={run}/slurmd-%n.its
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmdParameters=config_overrides
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePass={run}/munge.sock
AccountingStoragePort={database}
AccountingStorageTRES=gres/gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=200
SlurmdTimeout=300
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
KillWait=5
MaxArraySize=10001
MaxJobCount=20000
GresTypes=gpu
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] {size}
PartitionName=cpu Nodes={nodes} Default=YES MaxTime=60 State=UP
PartitionName=gpu Nodes={nodes} MaxTime=60 State=UP
PartitionName=low Nodes={nodes} MaxTime=60 PriorityTier=1 PreemptMode=REQUEUE State=UP
PartitionName=high Nodes={nodes} MaxTime=60 PriorityTier=10 PreemptMode=OFF State=UP
"""

ACCOUNTING_CONF = """\
AuthType=auth/munge
AuthInfo=socket={run}/munge.sock
CommunicationParameters=NoInAddrAny
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={database}
SlurmUser={user}
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageLoc=slurm_acct_db
StorageUser={user}
LogFile={folder}/log/slurmdbd.log
PidFile={run}/slurmdbd.its
"""


def prepare(place: Place) -> None:
    folder = place.folder
    conf = folder / "slurm.conf"
    if conf.exists():
        return
    if SQL.parent.is_dir() and not SQL.exists():
        raise JobkitError(f"{SQL} is missing", hint="sudo apt-get install --reinstall mariadb-server")
    start_over(place)
    for name in ("state", "db/data", "dev", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "db").chmod(0o700)
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(1024))
    gpus = []  # links to a device that every machine has, because Slurm wants device files
    for node in NODES:
        for number in range(GPUS):
            (folder / "dev" / f"{node}-gpu{number}").symlink_to("/dev/null")
        files = f"{folder}/dev/{node}-gpu[0-{GPUS - 1}]"
        gpus.append(f"NodeName={node} Name=gpu Type=v100 File={files}\n")
    (folder / "gres.conf").write_text("".join(gpus), encoding="utf-8")
    _make_database(place)
    names = _names(place)
    accounting = folder / "slurmdbd.conf"
    accounting.touch(0o600)  # slurmdbd refuses any other mode
    accounting.write_text(ACCOUNTING_CONF.format(**names), encoding="utf-8")
    # without it slurmd ends where no file system of cgroups is mounted, as in some containers; jobs use none
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n", encoding="utf-8")
    write_atomically(conf, CONF.format(**names))


def _names(place: Place) -> dict[str, object]:
    host = socket.gethostname().partition(".")[0]
    controller, database, first = place.ports[:3]
    size = f"CPUs={CPUS} RealMemory={MEMORY_MB} Gres=gpu:v100:{GPUS}"
    # as different as the folders: a run belongs to the cluster of this name
    cluster = f"practice-{hashlib.sha256(bytes(place.folder)).hexdigest()[:6]}"
    names = {"cluster": cluster, "host": host, "user": user()}
    names |= {"folder": str(place.folder), "run": f"{place.folder}/run"}
    ports = {"controller": controller, "database": database, "first": first, "last": first + len(NODES) - 1}
    return {**names, **ports, "nodes": ",".join(NODES), "size": size}


def _make_database(place: Place) -> None:
    """Make the tables of MariaDB itself, without those that mariadb-install-db adds: ten times as quick."""
    script = place.folder / "db" / "first.sql"
    tables = SQL.read_text(encoding="utf-8")
    script.write_text(f"create database mysql;\nuse mysql;\n{tables}\n", encoding="utf-8")
    argv = (*_database(place), "--bootstrap")
    words = ("sh", "-c", 'exec "$@" <"$0"', str(script), *argv)
    check(place.ask(*words), "MariaDB cannot make its tables")


def _database(place: Place) -> tuple[str, ...]:
    folder = place.folder / "db"
    where = (f"--datadir={folder}/data", f"--tmpdir={place.folder / 'tmp'}", f"--user={user()}")
    # Quick, and not safe against a crash of this machine. The socket is in a folder that only this user can
    # enter, so it needs no passwords. slurmdbd warns about a shorter lock wait.
    database_options = (
        "--innodb-flush-method=nosync",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-doublewrite=0",
        "--innodb-log-file-size=16M",
        "--innodb-buffer-pool-size=64M",
        "--innodb-lock-wait-timeout=900",
    )
    return ("mariadbd", "--no-defaults", "--skip-grant-tables", *database_options, *where)


def daemons(place: Place) -> tuple[Daemon, ...]:
    folder = place.folder
    run = folder / "run"
    conf = str(folder / "slurm.conf")
    secret = (f"--key-file={folder}/munge.key", f"--seed-file={folder}/munge.seed")
    munge = (f"--pid-file={run}/munged.its", f"--log-file={folder}/log/munged.log")
    mariadb = (f"--socket={folder}/db/socket", "--skip-networking", f"--pid-file={run}/mariadbd.its")
    argvs = {
        "munged": ("munged", "--foreground", "--force", *secret, *munge, f"--socket={run}/munge.sock"),
        "mariadbd": (*_database(place), *mariadb),
        "slurmdbd": ("slurmdbd", "-D"),
        "slurmctld": ("slurmctld", "-D", "-f", conf),
        **{f"slurmd-{node}": ("slurmd", "-D", "-N", node, "-f", conf) for node in NODES},
    }
    # libmariadb has no other word for the socket: StorageHost=localhost means the default one
    variables = {**place.variables, "PATH": search_path(), "MYSQL_UNIX_PORT": f"{folder}/db/socket"}
    return tuple(Daemon(name, argv, folder, variables) for name, argv in argvs.items())


def after(place: Place, daemon: Daemon) -> None:
    if daemon.name == "munged":
        wait_for((place.folder / "run" / "munge.sock").exists, f"munged answers; see {daemon.log}")
    if daemon.name == "mariadbd":
        wait_for((place.folder / "db" / "socket").exists, f"MariaDB answers; see {daemon.log}")
    if daemon.name == "slurmdbd":
        known = ("sacctmgr", "-n", "show", "cluster")
        wait_for(lambda: place.ask(*known).ok, f"slurmdbd answers; see {daemon.log}")
        conf = (place.folder / "slurm.conf").read_text(encoding="utf-8")
        name = conf.partition("ClusterName=")[2].split()[0]  # of an earlier jobkit it is ``lab``
        if not place.ask(*known, name).stdout.strip():
            place.ask("sacctmgr", "-i", "add", "cluster", name)


def states(place: Place) -> dict[str, str]:
    """Return the state of every node, in sinfo's short words."""
    listed = place.ask("sinfo", "-h", "-N", "-p", "cpu", "-o", "%N %t").stdout.splitlines()
    return dict(line.split() for line in listed if len(line.split()) == 2)


def heal(place: Place) -> None:
    for node, state in states(place).items():
        if state.startswith(("drain", "drng", "down", "fail")):
            place.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")


def takes_jobs(place: Place) -> bool:
    """Return whether controller and accounting answer, and a job can start on every node."""
    if not place.ask("sacct", "-n", "-X").ok:
        return False
    nodes = states(place)
    up = len(nodes) == len(NODES) and set(nodes.values()) <= {"idle", "mix", "alloc", "comp"}
    return up and place.ask("sbatch", "--test-only", "--wrap", "true").ok


def has_messages(place: Place) -> bool:
    """Return whether the controller has a message left for a node, such as to end a job's earlier try.

    A job that starts again before that is ended by it (measured, 22.05.8). Without an answer it may have one.
    """
    found = re.findall(r"^Agent (?:queue size|count): *(\d+)$", place.ask("sdiag").stdout, flags=re.MULTILINE)
    return not found or any(map(int, found))


def end_jobs(place: Place) -> None:
    place.ask("scancel", "--quiet", *place.ask("squeue", "-h", "-o", "%A").stdout.split())
    wait_for(lambda: not place.ask("squeue", "-h").stdout.strip(), "the jobs end", 15)


def summary(place: Place) -> str:
    return place.ask("sinfo", "-N", "-p", "cpu", "-o", "%8N %.6t %.4c %.6m %G").stdout.rstrip()
