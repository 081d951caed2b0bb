#!/usr/bin/env python3
"""completion.py [--check] - makes the completion of bash, zsh and fish from deploy/completion/commands.

--check: writes nothing; exit status 1, with the names, if a file is not what the table says.
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent / "deploy/completion"
TABLE = HERE / "commands"
PLAIN = {"file", "dir", "host", "user", "group", "word", ""}
NOTE = "# Made from deploy/completion/commands by scripts/completion.py: change it there."


def wrong(number, text):
    sys.exit(f"{TABLE}:{number}: {text}")


def kind(number, text):
    """What is completed: ('plain', name), ('words', list) or ('run', command)."""
    text = text.strip()
    if text in PLAIN:
        return ("plain", text)
    if text.startswith("`") and text.endswith("`") and len(text) > 2:
        return ("run", text[1:-1])
    words = text.split(",")
    if not all(re.fullmatch(r"[a-z0-9_-]+", w) for w in words):
        wrong(number, f"'{text}' is none of the kinds")
    return ("words", words)


def read():
    """[(words of the command, operands, {option: kind or None})], in the table's order."""
    out, seen = [], set()
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [p.replace("\\|", "|").strip() for p in re.split(r"(?<!\\)\|", line)]
        if len(parts) != 3:
            wrong(number, f"{len(parts)} columns, not 3")
        words = tuple(parts[0].split())
        if not 1 <= len(words) <= 4 or words in seen:
            wrong(number, f"'{parts[0]}' is there twice, or has too many words")
        seen.add(words)
        options = {}
        for o in parts[2].split():
            name, has_value, value = o.partition("=")
            if not name.startswith("-") or name in options:
                wrong(number, f"'{o}' is no option, or there twice")
            options[name] = kind(number, value) if has_value else None
        out.append((words, kind(number, parts[1]), options))
    return out


def children(table, words):
    """The words that may follow."""
    n = len(words)
    found = [w[n] for w, _, _ in table if len(w) > n and w[:n] == words]
    return list(dict.fromkeys(found))


def nodes(table):
    """[(words, kind of the next word, options)] of all commands and what stands above them."""
    own = {w: (k, o) for w, k, o in table}
    every = dict.fromkeys(w[:n] for w, _, _ in table for n in range(1, len(w) + 1))
    out = []
    for words in every:
        k, options = own.get(words, (("plain", ""), {}))
        below = children(table, words)
        if below:
            k = k if k[0] == "run" else ("words", below)
        out.append((words, k, options))
    return out


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def shown(k, run):
    """A kind as an argument of a shell's function: a command is `$(…)` of it by `run`."""
    what, value = k
    if what == "plain":
        return value or "none"
    return quoted(" ".join(value)) if what == "words" else run(value)


def cases(table, indent, run):
    """Lines of a `case` over the command: what comes next, the options, and those with values."""
    out = []
    for words, k, options in nodes(table):
        out.append(f"{indent}{quoted(' '.join(words))})")
        out.append(f"{indent}    operands={shown(k, lambda c: quoted('$' + c))}")
        if options:
            out.append(f"{indent}    options={quoted(' '.join(options))}")
        values = {o: v for o, v in options.items() if v is not None}
        if len(values) == 1:
            ((o, v),) = values.items()
            out.append(f"{indent}    case $prev in {o}) value={shown(v, run)} ;; esac")
        elif values:
            out.append(f"{indent}    case $prev in")
            for o, v in values.items():
                out.append(f"{indent}        {o}) value={shown(v, run)} ;;")
            out.append(f"{indent}    esac")
        out.append(f"{indent}    ;;")
    return "\n".join(out)


def programs(table):
    return list(dict.fromkeys(w[0] for w, _, _ in table))


BASH = """# Completion of nacre, lctl and lfs for bash: source it, or put it into
# /usr/share/bash-completion/completions/nacre, with links lctl and lfs.
@NOTE@

# What is completed: a kind, words, or with $ in front the lines that a command prints.
_nacre_of()
{
    case $1 in
        none|word) ;;
        file) COMPREPLY=($(compgen -f -- "$cur")) ;;
        dir) COMPREPLY=($(compgen -d -- "$cur")) ;;
        host) COMPREPLY=($(compgen -A hostname -- "$cur")) ;;
        user) COMPREPLY=($(compgen -u -- "$cur")) ;;
        group) COMPREPLY=($(compgen -g -- "$cur")) ;;
        \\$*) COMPREPLY=($(compgen -W "$(eval "${1#?}")" -- "$cur")) ;;
        *) COMPREPLY=($(compgen -W "$1" -- "$cur")) ;;
    esac
}

_nacre()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= operands=none options= value= i
    COMPREPLY=()
    # As many words as make a command.
    for ((i = 0; i < COMP_CWORD; i++)); do
        local next="${command:+$command }${COMP_WORDS[i]##*/}"
        case $next in
            @NAMES@) command=$next ;;
            *) break ;;
        esac
    done
    case $command in
@CASES@
    esac
    if [ -n "$value" ]; then
        _nacre_of "$value"
    elif [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
    else
        _nacre_of "$operands"
    fi
}
complete -o filenames -F _nacre @PROGRAMS@
"""

ZSH = """#compdef @PROGRAMS@
# Completion of nacre, lctl and lfs for zsh: put it into a folder of $fpath.
@NOTE@

# What is completed: a kind, words, or with $ in front the lines that a command prints.
_nacre_of()
{
    case $1 in
        none|word) ;;
        file) _files ;;
        dir) _files -/ ;;
        host) _hosts ;;
        user) _users ;;
        group) _groups ;;
        \\$*) compadd -- ${(f)"$(eval "${1#?}")"} ;;
        *) compadd -- ${=1} ;;
    esac
}

_nacre()
{
    local prev=$words[CURRENT-1] command= operands=none options= value= next i
    for ((i = 1; i < CURRENT; i++)); do
        next="${command:+$command }${words[i]##*/}"
        case $next in
            @NAMES@) command=$next ;;
            *) break ;;
        esac
    done
    case $command in
@CASES@
    esac
    if [[ -n $value ]]; then
        _nacre_of "$value"
    elif [[ $PREFIX == -* ]]; then
        compadd -- ${=options}
    else
        _nacre_of "$operands"
    fi
}

_nacre "$@"
"""

FISH = """# Completion of nacre, lctl and lfs for fish: put it into /usr/share/fish/vendor_completions.d, with links lctl.fish and lfs.fish.
@NOTE@

# Whether the words up to the cursor begin with this command, and name no longer one.
function __nacre_is
    set -l words (commandline -opc)
    set words[1] (string replace -r '.*/' '' -- $words[1])
    set -l command
    for w in $words
        contains -- (string join -- ' ' $command $w) @NAMES@
        or break
        set command $command $w
    end
    test (string join -- ' ' $command) = "$argv"
end

@CASES@
"""


def names(table):
    return [quoted(" ".join(w)) for w, _, _ in nodes(table)]


def filled(text, table, run):
    text = text.replace("@NOTE@", NOTE).replace("@PROGRAMS@", " ".join(programs(table)))
    return text.replace("@NAMES@", "|".join(names(table))).replace("@CASES@", cases(table, " " * 8, run))


def fish_kind(k):
    what, value = k
    if what == "words":
        return f"-f -a {quoted(' '.join(value))}"
    if what == "run":
        return f"-f -a {quoted('(' + value + ')')}"
    return {
        "file": "-F",
        "dir": "-f -a '(__fish_complete_directories)'",
        "host": "-f -a '(__fish_print_hostnames)'",
        "user": "-f -a '(__fish_complete_users)'",
        "group": "-f -a '(__fish_complete_groups)'",
    }.get(value, "-f")


def fish(table):
    out = []
    for words, k, options in nodes(table):
        start = f"complete -c {words[0]} -n {quoted('__nacre_is ' + ' '.join(words))}"
        out.append(f"{start} {fish_kind(k)}")
        for o, v in options.items():
            flag = f"-l {o[2:]}" if o.startswith("--") else f"-s {o[1:]}"
            out.append(f"{start} {flag}" + (f" -r {fish_kind(v)}" if v is not None else ""))
    text = FISH.replace("@NOTE@", NOTE).replace("@NAMES@", " ".join(names(table)))
    return text.replace("@CASES@", "\n".join(out))


def main():
    table = read()
    run = lambda c: quoted("$" + c)
    made = {"nacre": filled(BASH, table, run), "_nacre": filled(ZSH, table, run), "nacre.fish": fish(table)}
    if sys.argv[1:] == ["--check"]:
        old = [n for n, text in made.items() if not (HERE / n).is_file() or (HERE / n).read_text() != text]
        if old:
            sys.exit(f"not what deploy/completion/commands says: {', '.join(old)}; run scripts/completion.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        for n, text in made.items():
            (HERE / n).write_text(text)


main()
