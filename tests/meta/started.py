"""Commands of pages in forks of one process that has imported everything: a start of each would take seconds.

`python started.py serve SOCKET PROGRAM` waits on a socket; `python started.py ask
SOCKET NAME ARGUMENT ...` runs a program there with its own arguments, folder,
environment and streams, and ends with its exit code.
"""

import atexit
import contextlib
import gc
import json
import os
import signal
import socket
import sys
import traceback
import types

STREAMS = (0, 1, 2)


def ask(path, arguments):
    """Run a program in a fork of the server, and return its exit code."""
    request = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        socket.send_fds(server, [len(request).to_bytes(4, "big")], STREAMS)
        server.sendall(request)
        answer = server.recv(1)
    return answer[0] if answer else 1


def serve(path, programs):
    """Fork for each request until the process is ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        gc.freeze()  # forks look through and copy nothing of what is imported
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            size, streams, *_ = socket.recv_fds(connection, 4, len(STREAMS))
            if os.fork() == 0:
                _run(connection, int.from_bytes(size, "big"), streams, programs)
            connection.close()
            for stream in streams:
                os.close(stream)


def _run(connection, size, streams, programs):
    with connection.makefile("rb") as request:
        (name, *sys.argv[1:]), folder, environment = json.loads(request.read(size))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for here, stream in zip(STREAMS, streams, strict=True):
        os.dup2(stream, here)
    sys.stdin = os.fdopen(0)
    sys.stdout = os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    code = 0
    try:
        programs[name]()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        connection.send(bytes([code & 255]))
        os._exit(code)


def run_python():
    """Run the program of `python -c TEXT` or `python -`."""
    text = sys.argv[2] if sys.argv[1] == "-c" else sys.stdin.read()
    del sys.argv[1:]
    main = sys.modules["__main__"] = types.ModuleType(
        "__main__"
    )  # which files name as the module of a class
    exec(compile(text, "<string>", "exec"), vars(main))


def run_dppl():
    """Run `dppl`; the two commands that repeat what they do hundreds of times do so less often."""
    import dppl.cli.main
    import dppl.lab.commands.demo as demo

    sys.argv[0] = "dppl"
    demo.SEEDS = 2
    if "--runs" in sys.argv:
        sys.argv[sys.argv.index("--runs") + 1] = "20"
    dppl.cli.main.run()


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        sys.exit(ask(sys.argv[2], sys.argv[3:]))
    del sys.path[0]  # this folder, whose conftest is another
    import warnings

    import conftest
    import dppl
    from dppl.encoders.load import load_adapter

    exec(
        "import dppl\n[getattr(dppl, name) for name in dir(dppl)]\nfrom dppl.lab import *",
        {},
    )  # what is imported late
    library = conftest.torchvision_beside_torch()  # must live as long as its operators
    with contextlib.suppress(dppl.errors.MissingExtra):
        load_adapter("minilm")  # so that no fork imports torch and transformers
    warnings.simplefilter("error", FutureWarning)
    serve(sys.argv[2], {"python": run_python, "dppl": run_dppl})
