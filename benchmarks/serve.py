"""How fast `dppl serve` answers one connection and several, beside `predict` in a loop, and whether its memory grows.

    python benchmarks/serve.py [MODEL --texts FILE] [--seconds 60] [--rounds 5]
    [--clients 8] [--items 1] [--pin]

Serves a model of the sample's embeddings, or a model of texts with a line of FILE an
item, as a process of its own. This process calls `predict` on one request's items at a
time, then asks on one connection, then on as many as there are clients, each as soon as
the last answer came, and all of it once a round. With `--pin` the service has the first
processor and this process the last. Prints medians over the rounds: requests a second,
CPU time of the process that predicts, and latencies, also as ratios to one call of
`predict`; the time of the first request; and the server's resident memory after the
first round and at the end.
"""

import argparse
import http.client
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import dppl
from dppl import PublicData
from dppl.io import load_sample

PERCENTILES = (50, 95, 99)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--items", type=int, default=1)
    parser.add_argument("--pin", action="store_true")
    options = parser.parse_args()
    processors = sorted(os.sched_getaffinity(0))
    if options.pin:
        os.sched_setaffinity(0, processors[-1:])
    with tempfile.TemporaryDirectory() as folder:
        path, kind, items = subject(options, Path(folder))
        groups = [
            items[start : start + options.items]
            for start in range(0, len(items), options.items)
        ]
        predict, asked_of_it = looped(path, kind, groups)
        with served(path, processors[:1] if options.pin else processors) as server:
            compared(
                server,
                predict,
                asked_of_it,
                [json.dumps({kind: group}) for group in groups],
                options,
            )


def compared(server, predict, groups, bodies, options):
    """Call, ask on one connection and on several, in turns, and print what took how long."""
    port = int(server.stdout.readline().rpartition(":")[2])
    (first,) = asked(port, bodies, 1, 0)
    ways = {
        "predict in a loop": (
            time.process_time,
            lambda seconds: called(predict, groups, seconds),
        ),
        "1 connection": (
            lambda: cpu(server),
            lambda seconds: asked(port, bodies, 1, seconds),
        ),
        f"{options.clients} connections": (
            lambda: cpu(server),
            lambda seconds: asked(port, bodies, options.clients, seconds),
        ),
    }
    found = {name: [] for name in ways}
    sizes = []
    seconds = options.seconds / options.rounds / len(ways)
    for _ in range(options.rounds):
        for name, (used, way) in ways.items():
            start = time.perf_counter()
            before = used()
            latencies = way(seconds)
            rate = len(latencies) / (time.perf_counter() - start)
            each = 1e3 * (used() - before) / len(latencies)
            found[name].append(
                [rate, each, *(1e3 * np.percentile(latencies, PERCENTILES))]
            )
        sizes.append(memory(server))
    loop, _, call, *_ = np.median(found["predict in a loop"], axis=0)
    for name, rounds in found.items():
        rate, each, *latencies = np.median(rounds, axis=0)
        told = ", ".join(
            f"p{p} {ms:.2f} ms ({ms / call:.2f})"
            for p, ms in zip(PERCENTILES, latencies, strict=True)
        )
        print(
            f"{name}: {rate:.1f} a second ({rate / loop:.2f} of the loop's), {each:.2f} CPU ms each; {told}"
        )
    print(f"first request: {1e3 * first:.1f} ms")
    print(
        f"memory: {sizes[0] / 2**20:.1f} MiB, {sizes[-1] / 2**20:.1f} MiB at the end ({sizes[-1] / sizes[0]:.3f})"
    )


def subject(options, folder):
    """Return the model, the kind of its items, and items as JSON has them."""
    if options.model is not None:
        return (
            options.model,
            "texts",
            options.texts.read_text(encoding="utf-8").splitlines(),
        )
    sample = load_sample()
    model = dppl.SoftmaxPrototypes(
        dppl.ApproxDP(epsilon=1, delta=1e-6), classes=sample.classes
    )
    model.set_params(public=PublicData(sample.X_public)).fit(sample.X, sample.y).save(
        folder / "digits.safetensors"
    )
    return (
        folder / "digits.safetensors",
        "embeddings",
        np.asarray(sample.X_test, float).tolist(),
    )


def looped(path, kind, groups):
    """Return `predict` and the items of its calls."""
    if kind == "texts":
        return dppl.PrivateClassifier.load(path).predict, groups
    return dppl.load(path).predict, [np.array(group) for group in groups]


def called(predict, groups, seconds):
    """Return the time that each call of `predict` takes."""
    found = []
    end = time.perf_counter() + seconds
    for group in itertools.cycle(groups):
        start = time.perf_counter()
        predict(group)
        found.append(time.perf_counter() - start)
        if time.perf_counter() > end:
            return np.array(found)


@contextmanager
def served(path, processors):
    """Serve on some processors while the block runs."""
    command = [sys.executable, "-m", "dppl", "serve", str(path), "--port", "0"]
    pinned = (
        ["taskset", "-c", ",".join(map(str, processors))]
        if len(processors) == 1
        else []
    )
    with subprocess.Popen(
        [*pinned, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        try:
            yield server
        finally:
            server.terminate()


def asked(port, bodies, clients, seconds):
    """Send requests on several connections; return how long each took."""
    found = [[] for _ in range(clients)]
    end = time.perf_counter() + seconds

    def ask(number):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        place = number
        while True:
            start = time.perf_counter()
            connection.request(
                "POST",
                "/predict",
                bodies[place % len(bodies)],
                {"Content-Type": "application/json"},
            )
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                print(f"status {answer.status}", file=sys.stderr)
                os._exit(1)
            found[number].append(time.perf_counter() - start)
            place += clients
            if time.perf_counter() > end:
                break
        connection.close()

    threads = [
        threading.Thread(target=ask, args=(number,)) for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return np.concatenate(found)


def cpu(process):
    """Return the CPU seconds of the server."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process):
    """Return the resident bytes of the server."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


if __name__ == "__main__":
    main()
