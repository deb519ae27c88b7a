"""Compare what seeded fits release with what they released before: the net under every change of structure.

    python tools/golden.py FILE [--data FOLDER]            writes the hashes of this tree
    python tools/golden.py FILE [--data FOLDER] --compare  names what differs from them, and exits with 1

Hashed are, for every recipe of the laws, the released tensors, the whole model file and
the statement: of fits with single records and with persons, of tables in parts, and of
streams, each task with its state. Then the keys of all cells of the built-in
experiments, if their data lie in FOLDER. A file's bytes change with a parameter's name;
its tensors must not.
"""

import argparse
import json
import sys
import tempfile
import warnings
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import numpy as np  # noqa: E402

from dppl.errors import DpplError  # noqa: E402
from dppl.io import read_parts  # noqa: E402
from dppl.lab.experiments.config import load_experiment  # noqa: E402
from laws.recipes import KINDS  # noqa: E402
from laws.streams import learn, stream  # noqa: E402


def released(model):
    """Hash what a model releases and what it states."""
    tensors = sha256()
    for name, tensor in sorted(model._tensors().items()):
        tensors.update(
            f"{name} {tensor.dtype} {tensor.shape}".encode()
            + np.ascontiguousarray(tensor).tobytes()
        )
    statement = json.dumps(model.guarantee_.to_dict(), sort_keys=True)
    return {
        "tensors": tensors.hexdigest(),
        "file": sha256(model.to_bytes()).hexdigest(),
        "statement": sha256(statement.encode()).hexdigest(),
    }


def fits(kind, folder):
    """Yield the names and models of all fits of a recipe; those that it refuses are named as refused."""
    X, y = kind.records(40)
    persons = np.arange(40) // 3
    yield "records", lambda: kind.fit(X, y)
    yield "persons", lambda: kind.fit(X, y, given={"groups": persons})
    yield (
        "persons of two classes",
        lambda: kind.fit(X, y, given={"groups": persons}, max_classes_per_person=2),
    )
    np.savez(folder / "records.npz", x=X, y=y)
    yield "parts", lambda: kind.fit(read_parts(folder / "records.npz"), None)
    if hasattr(kind.cls, "partial_fit"):
        correlated = kind.recipe.options.get("noise", "independent") != "independent"
        how = {"state": folder / "state"} if correlated else {}
        yield "stream", lambda: learn(kind, stream(kind), how=how)


def golden(data):
    """Return all hashes by name."""
    found = {}
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            for name, fit in fits(kind, Path(folder)):
                try:
                    found[f"{kind}, {name}"] = released(fit())
                except (DpplError, TypeError) as error:
                    found[f"{kind}, {name}"] = {"refused": type(error).__name__}
    for path in (
        sorted((ROOT / "src/dppl/lab/experiments/configs").glob("*.yaml"))
        if data
        else ()
    ):
        try:
            cells = load_experiment(str(path), data).cells
        except DpplError as error:
            found[f"cells of {path.stem}"] = {"refused": type(error).__name__}
        else:
            keys = " ".join(cell.key for cell in cells)
            found[f"cells of {path.stem}"] = {"keys": sha256(keys.encode()).hexdigest()}
    return found


def main():
    """Write or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--compare", action="store_true")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    now = golden(chosen.data)
    if not chosen.compare:
        chosen.file.write_text(
            json.dumps(now, indent=1, sort_keys=True) + "\n", encoding="utf-8"
        )
        sys.stdout.write(f"{len(now)} entries in {chosen.file}\n")
        return 0
    before = json.loads(chosen.file.read_text(encoding="utf-8"))
    differ = []
    for name in sorted({*before, *now}):
        one = before.get(name, {})
        other = now.get(name, {})
        if what := [
            key for key in sorted({*one, *other}) if one.get(key) != other.get(key)
        ]:
            differ.append(f"{name}: {', '.join(what)}")
    sys.stdout.write(
        "\n".join([*differ, f"{len(now)} entries, {len(differ)} differ\n"])
    )
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
