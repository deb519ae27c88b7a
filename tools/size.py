"""Hold each package of dppl to its number of tokens of code.

Comments and docstrings are free, and density gains nothing. A change that needs more
raises the budget here, where a reviewer looks.
"""

import sys
from pathlib import Path

from dppl.statement.trust import rows_of_code

SOURCE = Path(__file__).parents[1] / "src" / "dppl"
# Tokens of code by package; "." is what lies in none.
BUDGET = {
    ".": 4900,
    "_utils": 4750,
    "audit": 7380,
    "cli": 25390,
    "continual": 7000,
    "encoders": 20580,
    "evaluation": 12350,
    "export": 6750,
    "federation": 12950,
    "finetune": 18050,
    "io": 32415,
    "kernel": 66400,
    "lab": 58200,
    "methods": 27865,
    "planning": 6470,
    "prediction": 7800,
    "serve": 7100,
    "statement": 16075,
    "training": 11450,
}
# One statement a line, so that a reader need not take a line apart.
TOKENS_A_LINE = 7.67


def measure(source):
    """Count the tokens of a file, and the lines that they are on."""
    rows = rows_of_code(source)
    return len(rows), len(set(rows))


def count(root=SOURCE):
    """Count tokens by package, and the lines of all."""
    tokens = {}
    n_lines = 0
    for path in sorted(root.rglob("*.py")):
        package = str(path.relative_to(root).parent).partition("/")[0]
        found, lines = measure(path.read_text(encoding="utf-8"))
        tokens[package] = tokens.get(package, 0) + found
        n_lines += lines
    return tokens, n_lines


def problems(tokens, n_lines, budget):
    """Say what is too large, and by how much."""
    for package, found in tokens.items():
        allowed = budget.get(package, 0)
        if found > allowed:
            yield f"{package} has {found} tokens, over its budget of {allowed}"
    for package in budget.keys() - tokens.keys():
        yield f"{package} is in the budget, but is no package"
    density = sum(tokens.values()) / n_lines
    if density > TOKENS_A_LINE:
        yield f"{density:.2f} tokens a line of code, over {TOKENS_A_LINE}"


def main():
    """Say what is too large; return the exit status."""
    tokens, n_lines = count()
    total = sum(tokens.values())
    wrong = list(problems(tokens, n_lines, BUDGET))
    summary = f"{total} tokens of code, {total / n_lines:.2f} a line"
    sys.stdout.write("\n".join(wrong or [summary]) + "\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
