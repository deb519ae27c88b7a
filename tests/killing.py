"""Work that is killed before each call that changes a directory or opens a ledger, and then done again."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="each attempt is a fork"
)

# Imports once what a whole run imports. Each attempt is a child in a fresh copy of the
# folder, which dies at its n-th call; the first that lives is the last.
SCRIPT = """
import gc, json, os, shutil, signal, sys, traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path

given = json.loads(sys.argv[1])
sys.path[:0] = given["path"]
exec(given["imports"])

CHANGES = {"os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "sqlite3.connect"}

def attempt(folder, dies_at):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.chdir(folder)
    output = os.open("../output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    passed = 0

    def watch(event, arguments):
        nonlocal passed
        changes = event in CHANGES or (event == "open" and arguments[2] & os.O_CREAT)
        if not changes or isinstance(arguments[0], int):
            return
        passed += os.path.abspath(os.fsdecode(arguments[0])).startswith(os.getcwd())
        if passed == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    if dies_at:
        sys.addaudithook(watch)
    code = 1
    try:
        exec(given["work"])
        code = 0
    except SystemExit as end:
        code = end.code
    except Exception:
        traceback.print_exc()
    finally:
        if not dies_at:
            Path("../modules").write_text("\\n".join(sys.modules))
        os._exit(code)

def state(code):
    text = Path("../output").read_text() if code is not None else ""
    seen = eval(given["look"])
    files = sorted(map(str, Path().rglob("*")))
    return {"code": code, "text": text, "seen": seen, "files": files}

here = Path(given["here"], "attempt")
shutil.copytree("prepared", here)
attempt(here, 0)
shutil.rmtree(here)
for name in Path("modules").read_text().splitlines():
    with suppress(Exception):  # of names that are no files
        import_module(name)
gc.freeze()  # attempts look through and copy nothing of what is imported
moment = 0
while True:
    moment += given["stride"]
    shutil.copytree("prepared", here)
    code = attempt(here, moment)
    os.chdir(here)
    told = {"killed": state(code)}
    if code == -signal.SIGKILL:
        told["repeated"] = state(attempt(here, 0))
    print(json.dumps(told), flush=True)
    os.chdir("..")
    shutil.rmtree(here)
    if code != -signal.SIGKILL:
        break
"""


def typed(*command):
    """Return the work of a command."""
    return f"from dppl.cli import main; main.run({[str(word) for word in command]})"


def killed_everywhere(folder, work, *, imports="", look="None", stride=1):
    """Kill a piece of Python at each moment, or every `stride`-th; return what is there then, and after a repeat.

    `folder` has a folder `prepared`, in copies of which it runs; `look` is an
    expression of what else to return of such a copy. Last comes what a run leaves that
    was not killed.
    """
    given = {
        "here": str(folder),
        "path": [os.path.abspath("tests"), *map(os.path.abspath, sys.path)],
        "imports": imports,
        "work": work,
        "look": look,
        "stride": stride,
    }
    done = subprocess.run(
        [
            sys.executable,
            *("-W", "ignore::DeprecationWarning"),
            *("-c", SCRIPT, json.dumps(given)),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "XDG_STATE_HOME": str(folder / "attempt" / "state"),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )
    assert done.returncode == 0, done.stderr
    attempts = [
        {name: SimpleNamespace(**state) for name, state in json.loads(line).items()}
        for line in done.stdout.splitlines()
    ]
    *killed, whole = [SimpleNamespace(**one) for one in attempts]
    assert whole.killed.code == 0, whole.killed.text
    return killed, whole.killed
