"""What qsub ignores in a job script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from operator import attrgetter
from posixpath import dirname, join

from jobkit.schedulers import parsed_script as scripts
from jobkit.schedulers.parsed_script import LintFinding, Option, Rule, Script, ScriptLine

_WAITS = "the job waits in Eqw without a message"
FILLED_IN = ("HOME", "USER", "JOB_ID", "JOB_NAME", "HOSTNAME", "TASK_ID")
"""What Grid Engine fills in of a log's path, unless it stands in braces: qsub(1), ``-o``."""
RULES: Mapping[str, Rule] = {
    "misspelt": scripts.ignored(
        "qsub takes it for a comment: it requests nothing",
        "write #$ {rest}, or, to leave it out on purpose, ##$ ...",
    ),
    "joined": scripts.ignored(
        "with -j y this path is ignored: errors go into the other log (qsub(1), -j)",
        "leave -e out, or write -j n",
    ),
    "soft-alone": scripts.ignored(
        "-soft ends with its line: the requests of other lines stay hard "
        "(measured; qsub(1) suggests otherwise)",
        "write it on the line of the soft request: #$ -soft -l NAME=VALUE",
    ),
    "signal": scripts.ignored(
        "this trap never runs: qdel and h_rt send KILL, and no {name} before it",
        "trap USR2 and request it with #$ -notify; near the walltime USR1, with #$ -l s_rt=TIME below h_rt",
    ),
    "soft": scripts.changed(
        "after -soft {gpu} is a soft request: the job may start on a node without it "
        "(8.1.9 refuses it if it is a consumable)",
        "write -hard before it, or request it on a separate line",
    ),
    "here-document": scripts.changed(
        "qsub reads here-documents too: it takes this for an option of this job",
        "do not begin the line with #$: indent it and write <<- with tabs, or print it by printf",
    ),
    "shell": scripts.changed(
        "without -S the queue's shell runs the script, and ignores its first line, "
        "unless the queue's shell_start_mode is unix_behavior (queue_conf(5))",
        "add #$ -S /bin/bash",
    ),
    "cwd": scripts.changed(
        "without -cwd the job begins in your home folder: its logs and relative paths are there",
        "add #$ -cwd (not needed if your site's sge_request has it)",
    ),
    "memory-unit": scripts.changed(
        "without a unit it is bytes (sge_types(5)): {value} of them",
        "write the unit, as in -l {name}={value}G",
    ),
    "time-unit": scripts.changed("the letter multiplies seconds, m by a million", "write {plain}"),
    "variable": scripts.changed(
        "Grid Engine fills in no ${unknown}: it takes the $ and what follows literally",
        f"write it out, or take one of {', '.join('$' + name for name in FILLED_IN)}",
    ),
    "folder": scripts.lost(
        f"there is no folder {{folder}}: if the node has none either, {_WAITS}",
        "mkdir -p {quoted}",
    ),
    "folder-number": scripts.lost(
        f"there is no folder with the job's number in its name, and Grid Engine makes none: {_WAITS}",
        "put the number into the name of a file, as in -{name} logs/$JOB_ID.$TASK_ID",
    ),
    "dash": scripts.refused("this is no hyphen: qsub refuses it, and names no line", "write {plain}"),
    "quotes": scripts.changed(
        "to qsub this quote is a letter of the value: as a name or a resource it refuses it",
        "write {plain}",
    ),
    "stray": scripts.refused(
        "no option takes {word!r}: qsub refuses the script with Unknown option, and names no line",
        "write {plain}",
    ),
    "value": scripts.refused("{value!r} is no {kind}: qsub refuses the job", "write {plain}"),
    "name": scripts.refused("qsub refuses {value!r} as the name of a job", "write -N {plain}"),
    "tasks": scripts.refused("qsub refuses the tasks {value!r}: {why}", "write {plain}"),
    "crlf": scripts.lost(
        f"it has Windows line ends (CRLF): qsub takes it, no shell can run it, and {_WAITS}",
        "remove the carriage returns: sed -i 's/\\r$//' SCRIPT",
    ),
}

_finding = partial(scripts.finding, RULES)

MARK = "#$"
_MEMORY = frozenset(
    {f"{kind}_{what}" for kind in "hs" for what in ("core", "data", "fsize", "rss", "stack", "vmem")}
    | {"mem_free", "m_mem_free", "mem_total", "swap_free", "virtual_free", "virtual_total"}
)  # resources that are memory at every site: queue_conf(5), load_parameters(5)


def lint(script: Script) -> tuple[LintFinding, ...] | None:
    directive = re.compile(rf"#\$\s*(?:-[A-Za-z]|-?[{scripts.DASHES}])")
    # indented, with a space inside, turned round, or with a neighbour of the dollar key
    misspelt = re.compile(r"(?:\s+#\$\s*|#\s+\$\s*|\$#\s*|#[S%]\s+)(?P<rest>-[A-Za-z].*)")
    ranges = re.compile(rf"(?<!\S)-(?:t|pe\s+\S+)\s+\S*[{scripts.DASHES}]\S*")
    read = [line for line in script.lines if directive.match(line.text)]
    asked = [line for line in read if not line.here]
    found = [
        _finding(line, "misspelt", rest=meant["rest"].strip())
        for line in script.lines
        if not line.here and (meant := misspelt.match(line.text))
    ]
    if not asked:
        return tuple(found) or None
    options = [
        Option(line, word[1:], after)
        for line in asked
        for word, after in pairwise((*scripts.words(line, MARK), ""))
        if word.startswith("-")
    ]
    last = {option.name: option for option in options}
    found += [_finding(line, "here-document") for line in read if line.here]
    found += scripts.misplaced_line_end(RULES, script)
    found += [one for line in asked for one in scripts.typographic(RULES, line, MARK, ranges)]
    found += [one for line in asked for one in _stray(line)]
    found += _refused(options)
    # A missing option is reported for the first line.
    found += [] if "S" in last else [_finding(script.lines[0], "shell")]
    found += [] if last.keys() & {"cwd", "wd"} else [_finding(script.lines[0], "cwd")]
    found += _soft(asked)
    memory = (request for request in _asked(options) if request[1] in _MEMORY)
    found += scripts.unitless_memory(RULES, memory, 2**20)
    found += _folders(script, options)
    if "e" in last and "j" in last and last["j"].value.startswith("y"):
        found.append(_finding(last["e"].line, "joined"))
    found += _trapped(script, options)
    return tuple(sorted(found, key=attrgetter("line")))


def _stray(line: ScriptLine) -> Iterator[LintFinding]:
    """Yield the first word that no option takes, or a lack of slots, up to an unknown option."""
    # What joins the words of a name and of a list
    glue = {"-N": "_", "-m": "", **dict.fromkeys(("-hold_jid", "-l", "-M", "-q", "-v"), ",")}
    # the options with one argument: qsub(1); -pe has two
    of_one = (
        r"-([aAbcCeijlmMNopPqrRStvw]|a[cr]|ckpt|d[cl]|hold_jid(_ad)?|jsv?|masterq|now|sc|shell|sync|tc|wd)"
    )
    for option, *values in scripts.options_of(line, MARK):
        number = 2 if option == "-pe" else int(bool(re.fullmatch(of_one, option)))
        if not number and not re.fullmatch(r"-(clear|cwd|h|hard|nostdin|notify|soft|terse|V|verify)", option):
            return
        if option == "-pe" and len(values) == 1:
            kind, plain = "parallel environment with slots", f"-pe {values[0]} NUMBER"
            yield _finding(line, "value", value=values[0], kind=kind, plain=plain)
        if values[number:]:
            if not re.match(f"-?[{scripts.DASHES}]", values[number]):
                value = " ".join(values if option in glue else values[:number])
                value = re.sub(r"[\s,]*([=,])[\s,]*|(?<=\d) ([kmgtKMGT])B?\b", r"\1\2", value).strip(",")
                value = re.sub(r" (?=\S+=)" if option == "-l" else " ", glue.get(option, " "), value)
                value, _, rest = value.partition(" ") if option == "-l" else (value, "", "")
                plain = f"{option} {value}".rstrip() + (rest and f" ({rest} is outside the list)")
                yield _finding(line, "stray", word=values[number], plain=plain)
            return


def _refused(options: Sequence[Option]) -> Iterator[LintFinding]:
    """Yield memory, times, names and tasks as qsub does not write them: sge_types(5), qsub(1)."""
    # memory or a time as qsub reads it: sge_types(5), strtod(3)
    part = r"(?:[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)"
    number = rf"(?i){part}?:{part}?:{part}?|(?:{part}|0x[\da-f]+)([kmgt]?)|infinity|true|false"
    for line, name, value in _asked(options):
        read = re.fullmatch(number, value)
        if name in _MEMORY and value and not read:
            size = re.fullmatch(r"(?i)(\d+(?:\.\d+)?)([kmgt])i?b?", value)
            plain = f"-l {name}={size[1]}{size[2]}" if size else f"a number and a unit, as in -l {name}=2G"
            yield _finding(line, "value", value=value, kind="memory", plain=plain)
        if name in {"h_rt", "s_rt", "h_cpu", "s_cpu"} and value and not (read and not read[1]):
            plain = "hours:minutes:seconds"
            clock = r"(?i)(?:(\d+)[-d])?(?:(\d+)(?:h|:|$))?(?:(\d+)(?:m|min|:|$))?(?:(\d+)s?)?"
            if time := re.fullmatch(clock, value.translate(scripts.PLAIN)):
                days, hours, minutes, seconds = (int(part or 0) for part in time.groups())
                minutes += (24 * days + hours) * 60 + seconds // 60
                plain = f"-l {name}={minutes // 60:02}:{minutes % 60:02}:{seconds % 60:02} ({plain})"
            yield _finding(line, "time-unit" if read else "value", value=value, kind="time", plain=plain)
    not_in_names = r"[^!-~]|[/:@*?\\]|^(?=\d)"
    for line, name, value in ((option.line, option.name, option.value) for option in options):
        if name == "N" and re.search(not_in_names, value) and not scripts.QUOTE.search(value):
            plain = re.sub(not_in_names, "_", re.sub(r"^(?=\d)", "j", value))
            yield _finding(line, "name", value=value, plain=plain)
        span, percent, most = value.translate(scripts.PLAIN).partition("%")
        zero = re.match(r"0+(?:-(\d+))?(?!\d)", span)
        if name == "t" and re.search(r"-.*,|,.*-", span):
            yield _finding(line, "tasks", value=value, why="-t takes one range", plain="one range")
        elif name == "t" and (zero or percent):
            plain = f"-t {f'1-{int(zero[1] or 0) + 1}' if zero else span}{percent and f' -tc {most}'}"
            why = "they begin at 1" if zero else "% is Slurm's"
            yield _finding(line, "tasks", value=value, why=why, plain=plain)


def _soft(asked: Sequence[ScriptLine]) -> Iterator[LintFinding]:
    for line in asked:
        option_words = scripts.words(line, MARK)
        soft, wishes = False, []  # what it asks for after ``-soft``
        for word, after in pairwise((*option_words, "")):
            soft = word == "-soft" or (soft and word != "-hard")
            if soft and word in {"-l", "-q"}:
                wishes.append(after)
        gpu = next((wish for wish in wishes if re.search(r"(?i)gpu|cuda|coproc", wish)), None)
        if gpu:
            yield _finding(line, "soft", gpu=gpu)
        elif "-soft" in option_words and not wishes:
            yield _finding(line, "soft-alone")


def _asked(options: Sequence[Option]) -> Iterator[tuple[ScriptLine, str, str]]:
    """Yield line, name and value of each resource that ``-l`` asks for."""
    for option in options:
        if option.name == "l":
            for request in option.value.split(","):
                name, _, value = request.partition("=")
                yield option.line, name, value


def _folders(script: Script, options: Sequence[Option]) -> Iterator[LintFinding]:
    """Yield missing folders, without which a job waits in Eqw."""
    start = None
    for option in options:
        if option.name in {"cwd", "wd"}:
            start = option.value if option.name == "wd" else ""
            yield from scripts.missing_folder(RULES, script, option.line, start)
    for option in options:
        if option.name in {"o", "e"}:
            yield from _log(script, option, start)


def _log(script: Script, option: Option, start: str | None) -> Iterator[LintFinding]:
    """Yield why a log cannot be opened, or is written elsewhere than the script names."""
    host, _, path = option.value.partition(",")[0].rpartition(":")
    variable = r"\$(\w+|\{\w+\})"
    named = set(re.findall(variable, dirname(path)))
    if unknown := [name for name in re.findall(variable, path) if name not in FILLED_IN]:
        yield _finding(option.line, "variable", unknown=unknown[0])
    elif named & {"JOB_ID", "TASK_ID"}:
        yield _finding(option.line, "folder-number", name=option.name)
    elif not host and named <= {"HOME", "USER"} and (start is not None or path[:1] in {"/", "$", "~"}):
        yield from scripts.missing_folder(RULES, script, option.line, join(start or "", dirname(path)))


def _trapped(script: Script, options: Sequence[Option]) -> Iterator[LintFinding]:
    """Yield the first trap of a script that asks for no warning: a KILL cannot be trapped."""
    asked = {option.name for option in options} | {name for _, name, _ in _asked(options)}
    # The signals before KILL, only if requested: qsub(1) `-notify`, queue_conf(5) `s_rt`
    warnings = {"notify": {"USR1", "USR2"}, "s_rt": {"USR1"}}
    sent = {signal for name in asked & set(warnings) for signal in warnings[name]}
    caught = frozenset({"HUP", "INT", "TERM", "USR1", "USR2"})
    trapped = {name: line for name, line in scripts.traps(script).items() if name in caught}
    if trapped and not sent & set(trapped):
        name, line = next(iter(trapped.items()))
        yield _finding(line, "signal", name=name)
