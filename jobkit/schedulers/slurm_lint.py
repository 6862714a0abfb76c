"""What sbatch ignores in a job script."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from operator import attrgetter
from posixpath import dirname, join

from jobkit.schedulers import parsed_script as scripts
from jobkit.schedulers.parsed_script import LintFinding, Option, Rule, Script, ScriptLine

_DIES = "the job dies at once, without a log"
RULES: Mapping[str, Rule] = {
    "misspelt": scripts.ignored(
        "sbatch takes it for a comment: it requests nothing",
        "write #SBATCH {rest}, or, to leave it out on purpose, ##SBATCH ...",
    ),
    "late": scripts.ignored(
        "sbatch stops reading at the first command, line {first}: this line requests nothing",
        "move it above line {first}, {command}",
    ),
    "signal": scripts.ignored(
        "it goes to job steps (srun) and not to this shell: the trap of line {line} never runs",
        "write --signal=B:{what}",
    ),
    "one-dash": scripts.changed(
        "sbatch takes -{name} for the short option -{letter}, with what follows as its value",
        "write it with two dashes, -{word}",
    ),
    "variable": scripts.changed(
        "sbatch fills in no variables: it takes the $ and what follows literally",
        "write it out, or give it on the command line; in a log's name take %j, %A, %a, %x or %u",
    ),
    "quotes": scripts.changed(
        "to sbatch this quote is a letter: it is in the value, and a space ends the value",
        "write {plain}",
    ),
    "hash": scripts.changed(
        "sbatch reads no further than #: the value ends there, and options after it are ignored",
        "put the value into quotes: {plain}",
    ),
    "scancel": scripts.changed(
        "in an array SLURM_JOB_ID is a number of the task alone: this cancels nothing, or, from the last "
        "task, the whole array",
        'write scancel "$SLURM_ARRAY_JOB_ID"_"$SLURM_ARRAY_TASK_ID"',
    ),
    "memory-unit": scripts.changed(
        "without a unit it is mebibytes: the job gets {value} MiB",
        "write the unit, as in --{name}={value}G",
    ),
    "shared-log": scripts.changed(
        "all tasks of the array write this one file, and each that begins empties it",
        "put the task into the name, as in --{name}={root}-%A_%a.out",
    ),
    "folder": scripts.lost(
        f"there is no folder {{folder}}: if the node has none either, {_DIES}",
        "mkdir -p {quoted}",
    ),
    "folder-number": scripts.lost(
        f"there is no folder with the job's number in its name, and Slurm makes none: {_DIES}",
        "put the number into the name of a file, as in --{name}=logs/%A_%a.out",
    ),
    "folder-home": scripts.lost(
        f"to sbatch ~ is the name of a folder: {_DIES}",
        "write the whole path, or one relative to the folder of the submission",
    ),
    "interpreter": scripts.lost(
        "sbatch takes it, and the job dies at once: the interpreter needs an absolute path",
        "make the first line #!/bin/bash",
    ),
    "dash": scripts.refused("this is no hyphen: sbatch refuses it, and names no line", "write {plain}"),
    "no-interpreter": scripts.refused(
        "sbatch refuses a script whose first line does not begin with #!",
        "make the first line #!/bin/bash",
    ),
    "crlf": scripts.refused(
        "it has Windows line ends (CRLF): sbatch refuses the script",
        "remove the carriage returns: sed -i 's/\\r$//' SCRIPT",
    ),
    "memory-twice": scripts.refused(
        "sbatch refuses --{first} with --{second}: they exclude each other",
        "leave one of them",
    ),
}

_finding = partial(scripts.finding, RULES)

MARK = "#SBATCH"
_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
ONE_DASH = (
    *("error", "exclude", "exclusive", "export", "export-file", "extra-node-info", "hint", "hold", "input"),
    *("open-mode", "output", "overcommit", "oversubscribe", "qos", "signal", "sockets-per-node"),
)  # long options that sbatch takes with one dash without a word; it refuses the others as wrong


def lint(script: Script) -> tuple[LintFinding, ...] | None:
    found = [*_misspelt(script)]
    first = next((line for line in script.lines if not line.header), None)
    found += [
        _finding(line, "late", first=first.number, command=first.text.strip())
        for line in script.lines
        if first and not (line.header or line.here) and line.text.startswith(MARK)
    ]
    asked = [line for line in script.lines if line.header and line.text.startswith(MARK)]
    if not asked and not found:
        return None
    options = [option for line in asked for option in _options(line)]
    top = script.lines[0]
    if not top.text.startswith("#!"):
        found.append(_finding(top, "no-interpreter"))
    elif not top.text[2:].lstrip().startswith("/"):
        found.append(_finding(top, "interpreter"))
    found += scripts.misplaced_line_end(RULES, script)
    found += [
        _finding(line, "one-dash", name=name, letter=name[0], word=word)
        for line in asked
        for word in scripts.words(line, MARK)
        if word.startswith("-") and (name := word[1:].partition("=")[0]) in ONE_DASH
    ]
    # What looks like a variable, unless it is in single quotes.
    quoted, hash_in_word = re.compile(r"\"(?P<double>[^\"]*)\"|'[^']*'"), re.compile(r"[^\s\"'#]+#\S*")
    texts = ((line, quoted.sub(r"\g<double>", line.text.partition(" #")[0])) for line in asked)
    found += [_finding(line, "variable") for line, text in texts if re.search(r"\$[A-Za-z_{(]|`", text)]
    ranges = re.compile(rf"(?<!\S)(?:--(?:array|time|nodes)[=\s]|-[atN])\s*\S*[{scripts.DASHES}]\S*")
    found += [one for line in asked for one in scripts.typographic(RULES, line, MARK, ranges, "--")]
    for line in asked:
        text = quoted.sub(lambda got: "q" * len(got[0]), line.text.partition(" #")[0])
        if glued := hash_in_word.search(text, 1):
            name, sign, value = line.text[slice(*glued.span())].rpartition("=")
            found.append(_finding(line, "hash", plain=f'{name}{sign}"{value}"'))
    if any(option.name == "array" for option in options):
        body = (line for line in script.lines if not (line.comment or line.here))
        command = r"\bscancel\b[^|;&#]*\$\{?SLURM_JOB_?ID\b"
        found += [_finding(line, "scancel") for line in body if re.search(command, line.text)]
    found += [*_memory(options), *_folders(script, options), *_shared_log(options), *_signal(script, options)]
    return tuple(sorted(found, key=attrgetter("line")))


def _misspelt(script: Script) -> Iterator[LintFinding]:
    directive = re.compile(r"\s*#(?P<gap>[!@\s]*)(?P<word>[A-Za-z]+)[\s:=]*(?P<rest>-{1,2}[A-Za-z].*)")
    command = re.compile(r"\s[^-\s]\S*\.(?:sh|bash|slurm|sbatch|job|sub|py)(?:\s|$)|--wrap\b|\\$")
    for line in script.lines:
        meant = None if line.here or line.text.startswith(MARK) else directive.match(line.text)
        # Similarity of a word to SBATCH (difflib): a letter missing, doubled or out of place
        if not meant or difflib.SequenceMatcher(None, "sbatch", meant["word"].lower()).ratio() < 0.75:
            continue
        # A comment may show a command, # sbatch --array=1-3 job.sh 7, or one that goes on in the next line
        shown = meant["word"].islower() and meant["gap"] and command.search(meant["rest"].rstrip())
        if not shown:
            yield _finding(line, "misspelt", rest=meant["rest"].strip())


def _options(line: ScriptLine) -> Iterator[Option]:
    """Yield the options of a directive as getopt_long(3) reads them."""
    short = {"o": "output", "e": "error", "a": "array", "D": "chdir"}
    long = ("output", "error", "array", "chdir", "signal", "open-mode", *_MEMORY)
    for word, after in pairwise((*scripts.words(line, MARK), "")):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if name not in long and len(name) >= 3:  # three letters are enough for getopt_long(3)
                name = next((known for known in long if known.startswith(name)), name)
            yield Option(line, name, value if equals else after)
        elif word.startswith("-") and word[1:2] in short:
            yield Option(line, short[word[1]], word[2:] or after)


def _memory(options: Sequence[Option]) -> Iterator[LintFinding]:
    asked = {option.name: option for option in options if option.name in _MEMORY}
    if len(asked) > 1:
        first, second, *_ = asked
        yield _finding(asked[second].line, "memory-twice", first=first, second=second)
    requests = ((option.line, option.name, option.value) for option in asked.values())
    yield from scripts.unitless_memory(RULES, requests, 100)


def _folders(script: Script, options: Sequence[Option]) -> Iterator[LintFinding]:
    """Yield missing folders, without which a job dies."""
    start = ""
    for option in options:
        if option.name == "chdir":
            start = option.value
            yield from _folder(script, option, start)
    for option in options:
        folder = dirname(option.value) if option.name in {"output", "error"} else ""
        if folder and "\\" not in option.value:
            yield from _folder(script, option, join(start, folder))


def _folder(script: Script, option: Option, folder: str) -> Iterator[LintFinding]:
    plain = folder.replace("%%", "")
    # Known only once there is a job: sbatch(1), filename pattern
    if re.search(r"%\d*[AaJj]", plain):
        yield _finding(option.line, "folder-number", name=option.name)
    elif folder.startswith("~"):
        yield _finding(option.line, "folder-home")
    elif not re.search(r"%\d*[A-Za-z]", plain):
        yield from scripts.missing_folder(RULES, script, option.line, folder.replace("%%", "%"))


def _shared_log(options: Sequence[Option]) -> Iterator[LintFinding]:
    last = {option.name: option for option in options}
    if "array" not in last or ("open-mode" in last and last["open-mode"].value.startswith("a")):
        return
    for name in ("output", "error"):
        path = last[name].value if name in last else "/dev/null"
        if not path.startswith("/dev/") and not re.search(r"%\d*[aJj]", path.replace("%%", "")):
            yield _finding(last[name].line, "shared-log", name=name, root=re.sub(r"\.\w+$", "", path))


def _signal(script: Script, options: Sequence[Option]) -> Iterator[LintFinding]:
    asked = next((option for option in reversed(options) if option.name == "signal"), None)
    whom, _, what = asked.value.rpartition(":") if asked else ("", "", "")
    line = scripts.traps(script).get(scripts.signal_name(what.partition("@")[0]))
    if asked and line and "B" not in whom:
        yield _finding(asked.line, "signal", line=line.number, what=what)
