# Recipes for developers: `just` lists them. CI runs .ci/run, which is the same checks in a fresh environment.

# Tests start many processes, which would compile everything anew without it.
export PYTHONDONTWRITEBYTECODE := ""

_default:
    @just --list

# Install the package with everything a developer needs into the active environment
install:
    pip install -e '.[dev]'

# Run all tests
test *ARGS:
    pytest -n auto {{ARGS}}

# Run the inner loop in less than a minute: no audits and slow tests, and fewer drawn examples
quick *PATHS='tests/unit tests/laws tests/meta --ignore tests/unit/lab':
    pytest -n auto -m "not slow and not audit" --hypothesis-profile quick {{PATHS}}

# Format, lint and type-check
lint:
    ruff format
    ruff check --fix
    mypy

# Plant known faults one by one and see whether the tests notice
mutate *ARGS:
    python tools/mutate.py {{ARGS}}

# Change the kernel in small ways and see whether its tests notice; `mutmut browse` shows what they do not
mutate-kernel *ARGS:
    mutmut run {{ARGS}}

# Audit every mechanism and estimator, and write the table of docs/api/audit.md
audit-table *ARGS:
    python tools/audit_table.py {{ARGS}}

# Write what pages and schemas repeat of the code: the trusted base, tokens by method, names of methods, codes
tables:
    python tools/tables.py

# Write what is made from sources (page of the commands, notebooks, tables of results), build the site in build/site
site:
    python tools/cli_page.py
    python tools/notebooks.py
    python tools/check_links.py
    python tools/results_page.py
    rm -rf build/docs && cp -r docs build/docs && cp -r build/results/. build/docs/results/
    DPPL_DOCS=build/docs zensical build --clean --strict

# Build the archives of a release twice, compare their bytes, and use the wheel where the repository is not
release:
    rm -rf build/release
    for copy in archives again; do python -m build --outdir build/release/$copy; done
    diff -r build/release/archives build/release/again && rm -r build/release/again
    python tools/check_dist.py build/release/archives
    python -m venv build/release/venv
    build/release/venv/bin/pip install build/release/archives/*.whl
    cd build/release && venv/bin/dppl demo && venv/bin/dppl verify dppl-demo/model.safetensors
    cyclonedx-py environment build/release/venv --output-file build/release/archives/dppl.cdx.json
    rm -r build/release/venv build/release/dppl-demo
    cd build/release/archives && sha256sum *

# What CI does
check:
    .ci/run

# Speed, memory and growth of the kernels beside peaks and peers, into benchmarks/RESULTS.md
bench *ARGS:
    python benchmarks/run.py {{ARGS}}

# Measure the results of docs/results.md again, from the embeddings in FOLDER, and pack them
results FOLDER:
    for name in text images assistant examples few minority clusters continual quarters; do \
        dppl bench $name --data {{FOLDER}} --out build/$name.jsonl && \
        rm -f docs/results/$name.jsonl.xz && dppl bench build/$name.jsonl --out docs/results/$name.jsonl.xz; done
    python tools/readme_picture.py
