"""Hold new measurements against committed ones: python benchmarks/compare.py NEW.json [OLD.json].

Only ratios taken within one run are compared, so that a slower machine is not a worse
library. Exit code 1 when one is worse by more than 15 %, or is missing without a
reason; 2 when the two were not measured at the same sizes.
"""

import argparse
import json
import sys
from pathlib import Path

COMMITTED = Path(__file__).with_name("results.json")
TOLERANCE = 0.15


def worsening(new, old):
    """Return by which factor an entry is worse; below 1 if it is better.

    Parameters
    ----------
    new, old : dict
        With a positive ``value``; ``better`` of the old one says which direction is
        ``"lower"`` or ``"higher"``.
    """
    factor = new["value"] / old["value"]
    return {"lower": factor, "higher": 1 / factor}[old["better"]]


def compare(new, old):
    """Return what is worse, and what the new run left out and gave a reason for, a line each.

    Parameters
    ----------
    new, old : dict
        What `run.py` wrote.
    """
    found = {entry["name"]: entry for entry in new["entries"]}
    worse = []
    left_out = []
    for entry in old["entries"]:
        name = entry["name"]
        value = entry["value"]
        if name in found:
            factor = worsening(found[name], entry)
            if not factor <= 1 + TOLERANCE:  # NaN is worse
                worse.append(
                    f"{name}: {found[name]['value']:.3g}, was {value:.3g} {entry['unit']} ({entry['better']} is better)"
                )
        elif entry["part"] in new["skipped"]:
            left_out.append(f"{name}: {new['skipped'][entry['part']]}")
        else:
            worse.append(f"{name}: not measured, was {value:.3g} {entry['unit']}")
    return worse, left_out


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("new", type=Path)
    parser.add_argument("old", type=Path, nargs="?", default=COMMITTED)
    options = parser.parse_args(arguments)
    try:
        new, old = (
            json.loads(path.read_text(encoding="utf-8"))
            for path in (options.new, options.old)
        )
    except (OSError, ValueError) as error:
        parser.error(f"NEW and OLD must be files that run.py wrote: {error}")
    if new["quick"] != old["quick"]:
        print(
            "a quick run and a whole one have other sizes: nothing to compare",
            file=sys.stderr,
        )
        return 2
    worse, left_out = compare(new, old)
    for line in left_out:
        print(f"left out: {line}")
    for line in worse:
        print(f"worse: {line}")
    if not worse:
        print(f"no ratio is worse by more than {TOLERANCE:.0%}")
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
