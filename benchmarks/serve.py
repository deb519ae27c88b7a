"""How fast `dppl serve` answers, beside calling `predict` in a loop, and whether its memory grows.

    python benchmarks/serve.py [MODEL --texts FILE] [--seconds 60] [--clients 8] [--items 1]

Serves a model of the sample's embeddings, or a model of texts with a line of FILE an item, as a process of its own.
This process then sends requests on as many connections as there are clients, each as soon as the last was answered.
Prints requests per second and latencies as ratios to `predict` in a loop on the same items in this process, before and
after, and the server's resident memory after a tenth of the time and at the end.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import dppl
from dppl import PublicData
from dppl.io import load_sample

PERCENTILES = (50, 95, 99)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--items", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, kind, items = subject(options, Path(folder))
        groups = [items[start : start + options.items] for start in range(0, len(items), options.items)]
        once = looped(path, kind, groups, max(2.0, options.seconds / 10))
        alone = measured(path, kind, groups, 1, max(2.0, options.seconds / 10))
        many = measured(path, kind, groups, options.clients, options.seconds)
        again = looped(path, kind, groups, max(2.0, options.seconds / 10))
    loop = np.sort(np.concatenate([once, again]))
    print(f"predict in a loop: {1e3 * np.median(loop):.3f} ms (median) for {options.items} {kind}")
    for clients, (seconds, latencies, _) in ((1, alone), (options.clients, many)):
        ratios = " ".join(f"p{p} {np.percentile(latencies, p) / np.median(loop):.2f}" for p in PERCENTILES)
        rate = len(latencies) / seconds * loop.mean()
        print(f"{clients} clients: {len(latencies)} requests, throughput {rate:.2f} of the loop's; latencies {ratios}")
    early, late = many[2]
    print(f"memory: {early / 2**20:.1f} MiB after a tenth, {late / 2**20:.1f} MiB at the end ({late / early:.3f})")


def subject(options, folder):
    """Return the model, the kind of its items, and items as JSON has them."""
    if options.model is not None:
        return options.model, "texts", options.texts.read_text(encoding="utf-8").splitlines()
    sample = load_sample()
    model = dppl.SoftmaxPrototypes(dppl.ApproxDP(epsilon=1, delta=1e-6), classes=sample.classes)
    model.set_params(public=PublicData(sample.X_public)).fit(sample.X, sample.y).save(folder / "digits.safetensors")
    return folder / "digits.safetensors", "embeddings", np.asarray(sample.X_test, float).tolist()


def looped(path, kind, groups, seconds):
    """Return the time that each call of `predict` takes."""
    if kind == "texts":
        predict = dppl.PrivateClassifier.load(path).predict
    else:
        predict, groups = dppl.load(path).predict, [np.array(group) for group in groups]
    predict(groups[0])
    found, end, place = [], time.perf_counter() + seconds, 0
    while (start := time.perf_counter()) < end:
        predict(groups[place % len(groups)])
        found.append(time.perf_counter() - start)
        place += 1
    return np.array(found)


def measured(path, kind, groups, clients, seconds):
    """Serve, ask, and return the time it took, latencies, and memory early and late."""
    command = [sys.executable, "-m", "dppl", "serve", str(path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            port = int(server.stdout.readline().rpartition(":")[2])
            bodies = [json.dumps({kind: group}) for group in groups]
            asked(port, bodies, clients, seconds / 10)
            early = memory(server)
            start = time.perf_counter()
            latencies = asked(port, bodies, clients, seconds)
            return time.perf_counter() - start, latencies, (early, memory(server))
        finally:
            server.terminate()


def asked(port, bodies, clients, seconds):
    """Send requests on several connections; return how long each took."""
    found = [[] for _ in range(clients)]
    end = time.perf_counter() + seconds

    def ask(number):
        connection, place = http.client.HTTPConnection("127.0.0.1", port, timeout=60), number
        while (start := time.perf_counter()) < end:
            connection.request("POST", "/predict", bodies[place % len(bodies)], {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                print(f"status {answer.status}", file=sys.stderr)
                os._exit(1)
            found[number].append(time.perf_counter() - start)
            place += clients
        connection.close()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return np.concatenate(found)


def memory(process):
    """Return the resident bytes of the server."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))


if __name__ == "__main__":
    main()
