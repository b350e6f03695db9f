"""Every way to break a scenario file, with the exact message that a person reads.

Each message is given without the `scenario.yaml:` that begins it, one string a problem.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.errors import ScenarioError
from lab.spec.load import load_scenario

SCRIPT = "script: train.py\n"
WORLD = "nodes: 2\nnproc_per_node: 1\n"
KEYS = (
    "name, learn, predict, nodes, nproc_per_node, backend, script, args, env, timeout, cold, resources, volumes, "
    "trace, expect"
)
QUOTE = "to mean this text itself, put it in quotes twice: \"'...'\""
NAME = "lower-case letters, digits, - and _, up to 63, a letter or digit first"
DURATION = "a duration such as 500ms, 60s, 2m or 1h, or a plain number of seconds"
SIZE = "a size such as 100k, 512MB or 1GiB (k, M, G, T: powers of 1000; Ki, Mi, Gi, Ti: of 1024), or bytes"
SCRIPT_PATH = "the path of a script beside this file, such as train.py"
VOLUME = "/host/folder:/node/folder, with :ro behind it for read-only"
CHECK = "file.py:function, both in the folder of the script"
DECIMAL = "a decimal number without leading zeros, or text in quotes"
VARIABLES = "rank, local_rank, node_rank, world_size, nnodes, nproc_per_node"
FUNCTIONS = "abs, float, int, len, list, max, min, range, round, str, sum"


def case(name: str, text: str, *messages: str) -> Any:
    return pytest.param(text, messages, id=name)


REFUSED_KEYS = [
    case("an unknown key", SCRIPT + "noeds: 3\n", f"2:1: unknown key 'noeds' (did you mean 'nodes'?); allowed: {KEYS}"),
    case("an unknown key that is near nothing", SCRIPT + "zzz: 3\n", f"2:1: unknown key 'zzz'; allowed: {KEYS}"),
    case(
        "an unknown key of resources",
        SCRIPT + "resources: {memmory: 1GiB}\n",
        "2:13: resources: unknown key 'memmory' (did you mean 'memory'?); allowed: cpus, memory, gpus",
    ),
    case(
        "an unknown key of expect",
        SCRIPT + "expect:\n  exits: {0: 1}\n",
        (
            "3:3: expect: unknown key 'exits' (did you mean 'exit'?); allowed: exit, notes, logs, calls, check, "
            "verdict, culprit, reason, tolerance"
        ),
    ),
    case(
        "an unknown key of tolerance",
        SCRIPT + "expect: {tolerance: {relativ: 1}}\n",
        ("2:22: expect.tolerance: unknown key 'relativ' (did you mean 'relative'?); allowed: relative, absolute"),
    ),
    case(
        "a key of resources at the top",
        SCRIPT + "memory: 1GiB\n",
        f"2:1: unknown key 'memory', which belongs under 'resources:'; allowed: {KEYS}",
    ),
    case(
        "a key of expect at the top",
        SCRIPT + "verdict: hung\n",
        f"2:1: unknown key 'verdict', which belongs under 'expect:'; allowed: {KEYS}",
    ),
    case(
        "faults", SCRIPT + "faults: []\n", "2:1: faults: known, but not supported by this version yet; remove the key"
    ),
    case(
        "network",
        SCRIPT + "network: {delay: 5ms}\n",
        "2:1: network: known, but not supported by this version yet; remove the key",
    ),
    case(
        "a duplicate key",
        SCRIPT + "nodes: 1\nname: a\nnodes: 2\n",
        "4:1: duplicate key 'nodes'; it is on line 2 already",
    ),
    case(
        "a duplicate variable", SCRIPT + "env: {A: 1, A: 2}\n", "2:13: env: duplicate key 'A'; it is on line 2 already"
    ),
    case("a number as a key", SCRIPT + "1: x\n", "2:1: found the number 1 as a key; allowed: text (in quotes: '1')"),
    case(
        "a boolean as a key",
        SCRIPT + "on: x\n",
        "2:1: found the boolean on (YAML reads it as true) as a key; allowed: text (in quotes: 'on')",
    ),
    case("nothing as a key", SCRIPT + "~: x\n", "2:1: found nothing as a key; allowed: text"),
    case("an empty key", SCRIPT + "'': x\n", "2:1: found an empty key; allowed: text"),
    case("a list as a key", SCRIPT + "[a]: x\n", "2:1: found a list as a key; allowed: text"),
    case("a mapping as a key", SCRIPT + "? {a: b}\n: x\n", "2:3: found a mapping as a key; allowed: text"),
    case(
        "a merge key", SCRIPT + "<<: {a: b}\n", "2:1: merge keys (<<) are not supported; allowed: the keys written out"
    ),
    case(
        "several problems in the order of the file",
        "name: A B\nscript: trian.py\nnodes: 0\nfoo: 1\n",
        f"1:7: name: found 'A B' (did you mean 'a-b'?); allowed: {NAME}",
        (f"2:9: script: found 'trian.py', which does not exist (did you mean 'train.py'?); allowed: {SCRIPT_PATH}"),
        "3:8: nodes: found the number 0; allowed: a whole number from 1 to 1024",
        f"4:1: unknown key 'foo'; allowed: {KEYS}",
    ),
]

REFUSED_TYPES = [
    case("a list for a name", SCRIPT + "name: [a]\n", f"2:7: name: found a list; allowed: {NAME}"),
    case(
        "a number for text",
        SCRIPT + "learn: 3\n",
        "2:8: learn: found the number 3; allowed: text (put it in quotes: '3')",
    ),
    case("a mapping for text", SCRIPT + "predict: {a: b}\n", "2:10: predict: found a mapping; allowed: text"),
    case(
        "a boolean of YAML 1.1 for text",
        SCRIPT + "learn: no\n",
        ("2:8: learn: found the boolean no (YAML reads it as false); allowed: text (put it in quotes: 'no')"),
    ),
    case(
        "a boolean of YAML 1.1 for a name",
        SCRIPT + "name: on\n",
        (f"2:7: name: found the boolean on (YAML reads it as true); allowed: {NAME} (put it in quotes: 'on')"),
    ),
    case(
        "text for a whole number",
        SCRIPT + "nodes: three\n",
        "2:8: nodes: found 'three'; allowed: a whole number from 1 to 1024",
    ),
    case(
        "a whole number in quotes",
        SCRIPT + "nodes: '3'\n",
        "2:8: nodes: found '3'; allowed: a whole number from 1 to 1024, without quotes",
    ),
    case(
        "a boolean for a whole number",
        SCRIPT + "nodes: true\n",
        "2:8: nodes: found the boolean true; allowed: a whole number from 1 to 1024",
    ),
    case(
        "a float for a whole number",
        SCRIPT + "nodes: 2.0\n",
        "2:8: nodes: found the number 2.0; allowed: a whole number from 1 to 1024",
    ),
    case(
        "nothing for a whole number",
        SCRIPT + "nodes:\n",
        "2:7: nodes: found nothing; allowed: a whole number from 1 to 1024",
    ),
    case(
        "a whole number in base 8",
        SCRIPT + "nodes: 010\n",
        "2:8: nodes: found the number 010; allowed: a whole number from 1 to 1024",
    ),
    case("no nodes", SCRIPT + "nodes: 0\n", "2:8: nodes: found the number 0; allowed: a whole number from 1 to 1024"),
    case(
        "a negative number of nodes",
        SCRIPT + "nodes: -1\n",
        "2:8: nodes: found the number -1; allowed: a whole number from 1 to 1024",
    ),
    case(
        "too many nodes",
        SCRIPT + "nodes: 1025\n",
        "2:8: nodes: found the number 1025; allowed: a whole number from 1 to 1024",
    ),
    case(
        "a list for nproc_per_node",
        SCRIPT + "nproc_per_node: [1]\n",
        "2:17: nproc_per_node: found a list; allowed: a whole number from 1 to 1024",
    ),
    case("text for args", SCRIPT + "args: --lr 3\n", "2:7: args: found '--lr 3'; allowed: a list of text and numbers"),
    case(
        "items of args that are neither text nor numbers",
        SCRIPT + "args: [1, yes, ~, [a]]\n",
        (
            "2:11: args[1]: found the boolean yes (YAML reads it as true); allowed: text or a number (put it "
            "in quotes: 'yes')"
        ),
        "2:16: args[2]: found nothing; allowed: text or a number",
        "2:19: args[3]: found a list; allowed: text or a number",
    ),
    case("text for a boolean", SCRIPT + "cold: maybe\n", "2:7: cold: found 'maybe'; allowed: true or false"),
    case(
        "a number for resources",
        SCRIPT + "resources: 3\n",
        "2:12: resources: found the number 3; allowed: a mapping with the keys cpus, memory, gpus",
    ),
    case(
        "text for cpus",
        SCRIPT + "resources: {cpus: many}\n",
        "2:19: resources.cpus: found 'many'; allowed: a number of cores, more than 0, at most 1024",
    ),
    case(
        "no cpus",
        SCRIPT + "resources: {cpus: 0}\n",
        "2:19: resources.cpus: found the number 0; allowed: a number of cores, more than 0, at most 1024",
    ),
    case(
        "a float for gpus",
        SCRIPT + "resources: {gpus: 1.5}\n",
        "2:19: resources.gpus: found the number 1.5; allowed: a whole number from 0 to 64",
    ),
    case(
        "text for expect",
        SCRIPT + "expect: passed\n",
        (
            "2:9: expect: found 'passed'; allowed: a mapping with the keys exit, notes, logs, calls, check, "
            "verdict, culprit, reason, tolerance"
        ),
    ),
    case(
        "nothing for expect",
        SCRIPT + "expect:\n",
        (
            "2:8: expect: found nothing; allowed: a mapping with the keys exit, notes, logs, calls, check, verdict, "
            "culprit, reason, tolerance"
        ),
    ),
]

REFUSED_WORDS = [
    case(
        "a name with bad characters",
        SCRIPT + "name: My Run\n",
        f"2:7: name: found 'My Run' (did you mean 'my-run'?); allowed: {NAME}",
    ),
    case("an empty name", SCRIPT + "name: ''\n", f"2:7: name: found ''; allowed: {NAME}"),
    case(
        "a number for a name",
        SCRIPT + "name: 2024\n",
        f"2:7: name: found the number 2024; allowed: {NAME} (put it in quotes: '2024')",
    ),
    case(
        "a name that is too long",
        SCRIPT + "name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n",
        (
            "2:7: name: found 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' (did you "
            f"mean 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'?); allowed: {NAME}"
        ),
    ),
    case(
        "an unknown backend",
        SCRIPT + "backend: glo\n",
        "2:10: backend: found 'glo' (did you mean 'gloo'?); allowed: gloo, nccl, mpi, ucc",
    ),
    case(
        "a backend in upper case",
        SCRIPT + "backend: GLOO\n",
        "2:10: backend: found 'GLOO' (did you mean 'gloo'?); allowed: gloo, nccl, mpi, ucc",
    ),
    case(
        "a number for a backend",
        SCRIPT + "backend: 3\n",
        "2:10: backend: found the number 3; allowed: gloo, nccl, mpi, ucc",
    ),
    case(
        "an unknown verdict",
        SCRIPT + "expect: {verdict: pass}\n",
        ("2:19: expect.verdict: found 'pass' (did you mean 'passed'?); allowed: passed, failed, error, hung"),
    ),
    case(
        "a list for a verdict",
        SCRIPT + "expect: {verdict: [hung]}\n",
        "2:19: expect.verdict: found a list; allowed: passed, failed, error, hung",
    ),
]

REFUSED_QUANTITIES = [
    case("a bad duration", SCRIPT + "timeout: 5x\n", f"2:10: timeout: found '5x'; allowed: {DURATION}"),
    case("a list for a duration", SCRIPT + "timeout: [1]\n", f"2:10: timeout: found a list; allowed: {DURATION}"),
    case(
        "a time-out of 0",
        SCRIPT + "timeout: 0\n",
        "2:10: timeout: found the number 0; allowed: more than 0 and at most 720h",
    ),
    case("a negative time-out", SCRIPT + "timeout: -5s\n", f"2:10: timeout: found '-5s'; allowed: {DURATION}"),
    case(
        "an endless time-out", SCRIPT + "timeout: .inf\n", f"2:10: timeout: found the number .inf; allowed: {DURATION}"
    ),
    case(
        "a time-out of months",
        SCRIPT + "timeout: 800h\n",
        "2:10: timeout: found '800h'; allowed: more than 0 and at most 720h",
    ),
    case(
        "a time-out in base 60",
        SCRIPT + "timeout: 1:30\n",
        f"2:10: timeout: found the number 1:30; allowed: {DURATION}",
    ),
    case(
        "a bad size", SCRIPT + "resources: {memory: lots}\n", f"2:21: resources.memory: found 'lots'; allowed: {SIZE}"
    ),
    case(
        "a boolean for a size",
        SCRIPT + "resources: {memory: true}\n",
        f"2:21: resources.memory: found the boolean true; allowed: {SIZE}",
    ),
    case(
        "too little memory",
        SCRIPT + "resources: {memory: 1k}\n",
        "2:21: resources.memory: found '1k'; allowed: from 64MiB to 1024TiB",
    ),
    case(
        "bad tolerances",
        SCRIPT + "expect: {tolerance: {relative: -1, absolute: x}}\n",
        "2:32: expect.tolerance.relative: found the number -1; allowed: a number, 0 or more",
        "2:46: expect.tolerance.absolute: found 'x'; allowed: a number, 0 or more",
    ),
    case(
        "a number for tolerance",
        SCRIPT + "expect: {tolerance: 0.1}\n",
        ("2:21: expect.tolerance: found the number 0.1; allowed: a mapping with the keys relative, absolute"),
    ),
]

REFUSED_SCRIPTS = [
    case(
        "no script",
        "name: a\n",
        "1:1: script: missing; allowed: the path of a script beside this file, such as script: train.py",
    ),
    case("a list for a script", "script: [a]\n", f"1:9: script: found a list; allowed: {SCRIPT_PATH}"),
    case("an empty script", "script: ''\n", f"1:9: script: found ''; allowed: {SCRIPT_PATH}"),
    case(
        "a script that does not exist",
        "script: trian.py\n",
        (f"1:9: script: found 'trian.py', which does not exist (did you mean 'train.py'?); allowed: {SCRIPT_PATH}"),
    ),
    case(
        "a script that does not exist in a folder below",
        "script: pkg/lop.py\n",
        (
            "1:9: script: found 'pkg/lop.py', which does not exist (did you mean 'pkg/loop.py'?); allowed: "
            f"{SCRIPT_PATH}"
        ),
    ),
    case(
        "a script that is near nothing",
        "script: zzzzzz\n",
        (
            "1:9: script: found 'zzzzzz', which does not exist; the folder holds outside.py, train.py, "
            f"verify.py; allowed: {SCRIPT_PATH}"
        ),
    ),
    case(
        "a script that is a folder",
        "script: pkg\n",
        (f"1:9: script: found 'pkg', which is a folder (did you mean 'pkg/loop.py'?); allowed: {SCRIPT_PATH}"),
    ),
    case(
        "an absolute script",
        "script: /etc/train.py\n",
        f"1:9: script: found '/etc/train.py', which is absolute; allowed: {SCRIPT_PATH}",
    ),
    case(
        "a script above the folder",
        "script: ../x/train.py\n",
        f"1:9: script: found '../x/train.py', which leaves the folder by '..'; allowed: {SCRIPT_PATH}",
    ),
    case(
        "a script above the folder in disguise",
        "script: pkg/../../train.py\n",
        f"1:9: script: found 'pkg/../../train.py', which leaves the folder by '..'; allowed: {SCRIPT_PATH}",
    ),
    case(
        "a script that is a link out of the folder",
        "script: outside.py\n",
        (
            "1:9: script: found 'outside.py', a link that leaves the folder to 'FOLDER-elsewhere.py'; allowed: "
            f"{SCRIPT_PATH}"
        ),
    ),
    case(
        "a script with a NUL character",
        'script: "train\\0.py"\n',
        f"1:9: script: found 'train\\x00.py'; allowed: {SCRIPT_PATH}, without NUL characters and surrogates",
    ),
]

REFUSED_ENVIRONMENT = [
    case("a list for env", SCRIPT + "env: [A=1]\n", "2:6: env: found a list; allowed: a mapping of variables to text"),
    case("nothing for a variable", SCRIPT + "env: {A: ~}\n", "2:10: env.A: found nothing; allowed: text or a number"),
    case("a list for a variable", SCRIPT + "env: {A: [1]}\n", "2:10: env.A: found a list; allowed: text or a number"),
    case(
        "a boolean for a variable",
        SCRIPT + "env: {A: true}\n",
        "2:10: env.A: found the boolean true; allowed: text or a number (put it in quotes: 'true')",
    ),
    case(
        "a variable with a bad character",
        SCRIPT + "env: {A-B: x}\n",
        "2:7: env: found the name 'A-B'; allowed: letters, digits and _, no digit first",
    ),
    case(
        "a variable that begins with a digit",
        SCRIPT + "env: {1A: x}\n",
        "2:7: env: found the name '1A'; allowed: letters, digits and _, no digit first",
    ),
    case(
        "a number for the name of a variable",
        SCRIPT + "env: {3: x}\n",
        "2:7: env: found the number 3 as a key; allowed: text (in quotes: '3')",
    ),
    case(
        "the rank",
        SCRIPT + "env: {RANK: 1}\n",
        "2:7: env: found RANK, which the lab sets itself; allowed: any other variable",
    ),
    case(
        "the address of the store",
        SCRIPT + "env: {MASTER_ADDR: x}\n",
        "2:7: env: found MASTER_ADDR, which the lab sets itself; allowed: any other variable",
    ),
    case(
        "a variable of torchrun",
        SCRIPT + "env: {TORCHELASTIC_RUN_ID: x}\n",
        "2:7: env: found TORCHELASTIC_RUN_ID, which the lab sets itself; allowed: any other variable",
    ),
    case(
        "a variable of the lab",
        SCRIPT + "env: {LAB_NOTE_SOCKET: x}\n",
        "2:7: env: found LAB_NOTE_SOCKET, which the lab sets itself; allowed: any other variable",
    ),
    case(
        "a NUL character in a variable",
        SCRIPT + 'env: {A: "a\\0b"}\n',
        "2:10: env.A: found 'a\\x00b'; allowed: text or a number, without NUL characters and surrogates",
    ),
    case(
        "half of a surrogate pair in a variable",
        SCRIPT + 'env: {A: "a\\ud800b"}\n',
        "2:10: env.A: found 'a\\ud800b'; allowed: text or a number, without NUL characters and surrogates",
    ),
]

REFUSED_VOLUMES = [
    case(
        "text for trace",
        SCRIPT + "trace: all\n",
        "2:8: trace: found 'all'; allowed: true, false, or a mapping with the key values",
    ),
    case(
        "an unknown key of trace",
        SCRIPT + "trace: {value: 3}\n",
        "2:9: trace: unknown key 'value' (did you mean 'values'?); allowed: values",
    ),
    case(
        "a negative number of values",
        SCRIPT + "trace: {values: -1}\n",
        "2:17: trace.values: found the number -1; allowed: a whole number from 0 to 1000000",
    ),
    case(
        "text for volumes",
        SCRIPT + "volumes: /a:/b\n",
        f"2:10: volumes: found '/a:/b'; allowed: a list of volumes, each {VOLUME}",
    ),
    case(
        "a number for a volume", SCRIPT + "volumes: [5]\n", f"2:11: volumes[0]: found the number 5; allowed: {VOLUME}"
    ),
    case(
        "a volume without a target", SCRIPT + "volumes: [data]\n", f"2:11: volumes[0]: found 'data'; allowed: {VOLUME}"
    ),
    case(
        "a volume with a relative target",
        SCRIPT + "volumes: ['data:rel']\n",
        (
            f"2:11: volumes[0]: found 'data:rel'; allowed: {VOLUME}; the folder in the node is absolute, "
            "without '..', and not /"
        ),
    ),
    case(
        "a volume over the root",
        SCRIPT + "volumes: ['data:/']\n",
        (
            f"2:11: volumes[0]: found 'data:/'; allowed: {VOLUME}; the folder in the node is absolute, "
            "without '..', and not /"
        ),
    ),
    case(
        "a volume with an unknown mode",
        SCRIPT + "volumes: ['data:/x:rx']\n",
        f"2:11: volumes[0]: found 'data:/x:rx'; allowed: {VOLUME}",
    ),
    case(
        "a volume whose source does not exist",
        SCRIPT + "volumes: ['dta:/data']\n",
        (
            "2:11: volumes[0]: found 'dta:/data', but 'FOLDER/dta' does not exist on this host (did you mean "
            f"'FOLDER/data'?); allowed: {VOLUME}"
        ),
    ),
    case(
        "two volumes on one target",
        SCRIPT + "volumes: ['data:/x', 'pkg:/x/']\n",
        (
            "2:22: volumes[1]: found 'pkg:/x/', but line 2 mounts /x already; allowed: one volume for each "
            "folder in the node"
        ),
    ),
]

REFUSED_EXPECTATIONS = [
    case(
        "a number for exit",
        SCRIPT + "expect: {exit: 0}\n",
        "2:16: expect.exit: found the number 0; allowed: a mapping whose keys are ranks, such as {0: ...}",
    ),
    case(
        "a rank that is too high",
        SCRIPT + WORLD + "expect: {exit: {2: 1}}\n",
        "4:17: expect.exit: found the number 2 as a key; allowed: a rank from 0 to 1 (2 x 1 ranks)",
    ),
    case(
        "ranks that are too high everywhere",
        SCRIPT + WORLD + "expect: {logs: {2: x}, culprit: 2, notes: {a: {0: 1, 5: 2}}}\n",
        "4:17: expect.logs: found the number 2 as a key; allowed: a rank from 0 to 1 (2 x 1 ranks)",
        "4:33: expect.culprit: found the number 2; allowed: a rank from 0 to 1 (2 x 1 ranks)",
        "4:54: expect.notes.a: found the number 5 as a key; allowed: a rank from 0 to 1 (2 x 1 ranks)",
    ),
    case(
        "a negative rank",
        SCRIPT + "expect: {exit: {-1: 1}}\n",
        "2:17: expect.exit: found the number -1 as a key; allowed: a rank, 0 or more",
    ),
    case(
        "a rank in quotes",
        SCRIPT + "expect: {exit: {'1': 1}}\n",
        "2:17: expect.exit: found '1' as a key; allowed: a rank, 0 or more, without quotes",
    ),
    case(
        "exit codes that no process has",
        SCRIPT + "expect: {exit: {0: 256, 1: ok}}\n",
        "2:20: expect.exit.0: found the number 256; allowed: a whole number from -64 to 255",
        "2:28: expect.exit.1: found 'ok'; allowed: a whole number from -64 to 255",
    ),
    case(
        "text for logs",
        SCRIPT + "expect: {logs: text}\n",
        "2:16: expect.logs: found 'text'; allowed: a mapping whose keys are ranks, such as {0: ...}",
    ),
    case(
        "bad regular expressions",
        SCRIPT + "expect: {logs: {0: 'a(b'}, reason: '[x'}\n",
        (
            "2:20: expect.logs.0: found 'a(b'; allowed: a regular expression (missing ), unterminated "
            "subpattern at position 1)"
        ),
        ("2:36: expect.reason: found '[x'; allowed: a regular expression (unterminated character set at position 0)"),
    ),
    case(
        "a number for a regular expression",
        SCRIPT + "expect: {logs: {0: 5}}\n",
        "2:20: expect.logs.0: found the number 5; allowed: a regular expression (put it in quotes: '5')",
    ),
    case(
        "text for a culprit",
        SCRIPT + "expect: {culprit: two}\n",
        "2:19: expect.culprit: found 'two'; allowed: a rank, 0 or more",
    ),
    case(
        "a mapping for a reason",
        SCRIPT + "expect: {reason: {}}\n",
        "2:18: expect.reason: found a mapping; allowed: a regular expression",
    ),
    case(
        "a list for notes",
        SCRIPT + "expect: {notes: [1]}\n",
        "2:17: expect.notes: found a list; allowed: a mapping from the names of notes to values",
    ),
    case(
        "a number for the name of a note",
        SCRIPT + "expect: {notes: {1: 2}}\n",
        "2:18: expect.notes: found the number 1 as a key; allowed: text (in quotes: '1')",
    ),
    case(
        "ranks below the top of a note",
        SCRIPT + "expect: {notes: {a: {b: {0: 1}}}}\n",
        (
            "2:26: expect.notes.a.b: found the number 0 as a key; allowed: text; a mapping per rank stands "
            "directly under the name of the note"
        ),
    ),
    case(
        "ranks and names in one note",
        SCRIPT + "expect: {notes: {a: {b: 1, 0: 1}}}\n",
        (
            "2:28: expect.notes.a: found the number 0 as a key; allowed: text; a mapping per rank stands "
            "directly under the name of the note"
        ),
    ),
    case(
        "numbers in base 8, 60, 16 and with _",
        SCRIPT + "expect: {notes: {a: 010, b: 1:30, c: 0x1F, d: 1_0}}\n",
        f"2:21: expect.notes.a: found the number 010; allowed: {DECIMAL}",
        f"2:29: expect.notes.b: found the number 1:30; allowed: {DECIMAL}",
        f"2:38: expect.notes.c: found the number 0x1F; allowed: {DECIMAL}",
        f"2:47: expect.notes.d: found the number 1_0; allowed: {DECIMAL}",
    ),
    case(
        "a number for a check",
        SCRIPT + "expect: {check: 3}\n",
        f"2:17: expect.check: found the number 3; allowed: {CHECK}",
    ),
    case(
        "a check without a function",
        SCRIPT + "expect: {check: verify.py}\n",
        f"2:17: expect.check: found 'verify.py'; allowed: {CHECK}",
    ),
    case(
        "a check of something that is no function",
        SCRIPT + "expect: {check: 'verify.py:a b'}\n",
        f"2:17: expect.check: found 'verify.py:a b'; allowed: {CHECK}",
    ),
    case(
        "a check in a file that does not exist",
        SCRIPT + "expect: {check: 'verfy.py:check_sums'}\n",
        (
            "2:17: expect.check: found 'verfy.py:check_sums', whose file does not exist (did you mean "
            f"'verify.py'?); allowed: {CHECK}"
        ),
    ),
    case(
        "a check by a function that does not exist",
        SCRIPT + "expect: {check: 'verify.py:chek_sums'}\n",
        (
            "2:17: expect.check: found 'verify.py:chek_sums', but verify.py defines no chek_sums (did you "
            f"mean 'check_sums'?); allowed: {CHECK}"
        ),
    ),
    case(
        "a check above the folder",
        SCRIPT + "expect: {check: '../verify.py:check_sums'}\n",
        (f"2:17: expect.check: found '../verify.py:check_sums', which leaves the folder by '..'; allowed: {CHECK}"),
    ),
]

REFUSED_EXPRESSIONS = [
    case(
        "a misspelt variable",
        SCRIPT + WORLD + "expect: {notes: {a: 10 * rnk}}\n",
        (
            "4:21: expect.notes.a: the expression '10 * rnk' uses the unknown name 'rnk' (did you mean "
            f"'rank'?); allowed: {VARIABLES}; {QUOTE}"
        ),
    ),
    case(
        "a misspelt variable beside a known one",
        SCRIPT + WORLD + "expect: {notes: {a: rank + wrld_size}}\n",
        (
            "4:21: expect.notes.a: the expression 'rank + wrld_size' uses the unknown name 'wrld_size' (did "
            f"you mean 'world_size'?); allowed: {VARIABLES}; {QUOTE}"
        ),
    ),
    case(
        "an unknown name beside a variable",
        SCRIPT + WORLD + "expect: {notes: {a: hello - rank}}\n",
        (
            "4:21: expect.notes.a: the expression 'hello - rank' uses the unknown name 'hello'; allowed: "
            f"{VARIABLES}; {QUOTE}"
        ),
    ),
    case(
        "an unknown function",
        SCRIPT + WORLD + "expect: {notes: {a: ragne(rank)}}\n",
        (
            "4:21: expect.notes.a: the expression 'ragne(rank)' calls the unknown function 'ragne' (did you "
            f"mean 'range'?); allowed: {FUNCTIONS}; {QUOTE}"
        ),
    ),
    case(
        "an attribute",
        SCRIPT + WORLD + "expect: {notes: {a: rank.real}}\n",
        (f"4:21: expect.notes.a: the expression 'rank.real' uses a '.' behind a name, which is not available; {QUOTE}"),
    ),
    case(
        "a comparison by identity",
        SCRIPT + WORLD + "expect: {notes: {a: rank is 0}}\n",
        f"4:21: expect.notes.a: the expression 'rank is 0' uses 'is', which is not available; {QUOTE}",
    ),
    case(
        "a lambda",
        SCRIPT + WORLD + "expect: {notes: {a: 'lambda: rank'}}\n",
        f"4:21: expect.notes.a: the expression 'lambda: rank' uses Lambda, which is not available; {QUOTE}",
    ),
    case(
        "an expression cut by a comma",
        SCRIPT + WORLD + "expect: {notes: {a: [min(rank, 1)]}}\n",
        (
            "4:22: expect.notes.a[0]: the expression 'min(rank' is not complete; in a YAML list in brackets, "
            f"an expression with a comma must be in quotes; {QUOTE}"
        ),
    ),
    case(
        "a division by zero",
        SCRIPT + WORLD + "expect: {notes: {a: 1 / rank}}\n",
        "4:21: expect.notes.a: the expression '1 / rank' cannot be computed for rank 0: division by zero",
    ),
    case(
        "a division by zero on one rank only",
        SCRIPT + WORLD + "expect: {notes: {a: {0: 1 + rank, 1: 1 / (rank - 1)}}}\n",
        ("4:38: expect.notes.a.1: the expression '1 / (rank - 1)' cannot be computed for rank 1: division by zero"),
    ),
    case(
        "a huge number",
        SCRIPT + WORLD + "expect: {notes: {a: 9**9**9 * rank}}\n",
        (
            "4:21: expect.notes.a: the expression '9**9**9 * rank' cannot be computed for rank 0: the number "
            "is too large"
        ),
    ),
    case(
        "a huge text",
        SCRIPT + WORLD + "expect: {notes: {a: \"'a' * 10**9 * (rank + 1)\"}}\n",
        (
            "4:21: expect.notes.a: the expression \"'a' * 10**9 * (rank + 1)\" cannot be computed for rank 0: "
            "the list or text is too long"
        ),
    ),
]

REFUSED_YAML = [
    case(
        "a tab in the indentation",
        SCRIPT + "resources:\n\tcpus: 1\n",
        "3:1: found a tab in the indentation; allowed: spaces",
    ),
    case(
        "a colon in text",
        SCRIPT + "predict: Question: what?\n",
        (
            "2:18: not valid YAML: mapping values are not allowed here; check the indentation, and put text "
            "that contains ': ' in quotes"
        ),
    ),
    case(
        "a list that is not closed",
        SCRIPT + "args: [a\nnodes: 3\n",
        "3:6: not valid YAML: while parsing a flow sequence, expected ',' or ']', but got ':'",
    ),
    case(
        "a quote that is not closed",
        SCRIPT + "learn: 'abc\n",
        "2:8: not valid YAML: while scanning a quoted scalar, found unexpected end of stream",
    ),
    case(
        "a line without a colon",
        SCRIPT + "nodes\nname: a\n",
        ("3:1: not valid YAML: while scanning a simple key, could not find expected ':'; a key needs ': ' behind it"),
    ),
    case(
        "text that begins with @",
        SCRIPT + "learn: @abc\n",
        (
            "2:8: not valid YAML: while scanning for the next token, found character '@' that cannot start "
            "any token; text that begins with @ must be in quotes"
        ),
    ),
    case(
        "a backslash in double quotes",
        SCRIPT + 'expect: {logs: {0: "\\d+"}}\n',
        (
            "2:22: not valid YAML: while scanning a double-quoted scalar, found unknown escape character "
            "'d'; use single quotes around text with backslashes"
        ),
    ),
    case(
        "an escape beyond Unicode",
        SCRIPT + 'learn: "\\UFFFFFFFF"\n',
        "2:11: not valid YAML: found an escape that names no character",
    ),
    case(
        "an unknown alias",
        SCRIPT + "learn: *foo\n",
        "2:8: not valid YAML: found undefined alias 'foo'; text that begins with * must be in quotes",
    ),
    case(
        "an alias inside of itself",
        SCRIPT + "args: &a [*a]\n",
        "2:11: alias *a stands inside of what it names; write the value out",
    ),
    case(
        "a tag that makes an object",
        SCRIPT + "name: !!python/object/apply:os.system [ls]\n",
        (
            "2:7: found the tag '!!python/object/apply:os.system'; tags are not supported; allowed: the "
            "value without a tag"
        ),
    ),
    case(
        "a harmless tag",
        SCRIPT + "name: !!str x\n",
        "2:7: found the tag '!!str'; tags are not supported; allowed: the value without a tag",
    ),
    case(
        "several documents",
        SCRIPT + "---\nscript: train.py\n",
        "2:1: found a second document; allowed: one document a file; remove the '---'",
    ),
    case("a list at the top", "- a\n", f"1:1: the scenario: found a list; allowed: a mapping with the keys {KEYS}"),
    case(
        "text at the top", "train.py\n", f"1:1: the scenario: found 'train.py'; allowed: a mapping with the keys {KEYS}"
    ),
    case("an empty file", "", "1:1: the file is empty; allowed: a mapping with at least the key 'script'"),
    case(
        "a file of comments", "# nothing\n", "1:1: the file is empty; allowed: a mapping with at least the key 'script'"
    ),
    case("an empty document", "---\n", "1:1: the file is empty; allowed: a mapping with at least the key 'script'"),
    case(
        "a control character",
        SCRIPT + "learn: a\ab\n",
        "2:9: found the control character '\\x07'; allowed: printable text",
    ),
    case("a NUL character", SCRIPT + "learn: a\0b\n", "2:9: found a NUL character; allowed: printable text"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a script, a check, two folders and a link that leaves it."""
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "verify.py").write_text("def check_sums(results):\n    return True\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "loop.py").write_text("")
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere.py"
    elsewhere.write_text("")
    (tmp_path / "outside.py").symlink_to(elsewhere)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        *REFUSED_KEYS,
        *REFUSED_TYPES,
        *REFUSED_WORDS,
        *REFUSED_QUANTITIES,
        *REFUSED_SCRIPTS,
        *REFUSED_ENVIRONMENT,
        *REFUSED_VOLUMES,
        *REFUSED_EXPECTATIONS,
        *REFUSED_EXPRESSIONS,
        *REFUSED_YAML,
    ],
)
def test_a_broken_scenario_is_refused_with_one_exact_line_for_each_problem(
    folder: Path, text: str, messages: tuple[str, ...]
) -> None:
    (folder / "scenario.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as refusal:
        load_scenario(Path("scenario.yaml"))
    expected = [f"scenario.yaml:{message}".replace("FOLDER", str(folder)) for message in messages]
    assert refusal.value.message.split("\n") == expected
    assert refusal.value.exit_code == 2
