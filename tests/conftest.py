"""Run before NumPy is imported: one BLAS thread a process, as the tests run in several. And an encoder."""

import gc
import os
import shutil
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault(
    "CUDA_VISIBLE_DEVICES", ""
)  # seeded models of tests are those of a processor
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402 (NumPy comes with it)

from browsing import WIDE, Visit, chromium  # noqa: E402
from dppl import errors  # noqa: E402

# No test cuts the power, and a disk that others use, too, takes milliseconds for each
# of thousands of calls. SQLite and other processes wait for the disk themselves, so
# files of tests are in memory where there is enough.
os.fsync = lambda descriptor: None
if os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

# Machines that run tests are shared, so no test may depend on how long an example
# takes.
settings.register_profile("dppl", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)  # for `just quick`
settings.load_profile("dppl")


@pytest.fixture(autouse=True)
def weak_budgets_are_new():
    """A process warns of each weak budget once; each test is a process of its own in this."""
    errors.warn_once.cache_clear()


def pytest_addoption(parser):
    """Let .ci/run install extras later and run `pytest @FILE`: what was skipped without them, and nothing twice."""
    parser.addoption(
        "--skipped-into",
        metavar="FILE",
        type=Path,
        help="write the tests and files that are skipped here",
    )


def pytest_configure(config):
    path = config.getoption("--skipped-into")
    if path is not None and not hasattr(
        config, "workerinput"
    ):  # workers tell the process that started them
        config.pluginmanager.register(_Skipped(path))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Let tests for which one thing is started stand first and side by side, so that one worker of several starts it."""
    starts = ("environment", "ray_engine", "browser")
    items.sort(
        key=lambda item: [
            name not in getattr(item, "fixturenames", ()) for name in starts
        ]
    )


def pytest_collection_finish():
    """Keep what is collected, which lives as long as the run, out of every garbage collection."""
    gc.collect()
    gc.freeze()


class _Skipped:
    def __init__(self, path):
        self.path = path
        self.ids = {}

    def pytest_runtest_logreport(self, report):
        if report.skipped and not hasattr(report, "wasxfail"):
            self.ids[report.nodeid] = True

    pytest_collectreport = pytest_runtest_logreport

    def pytest_sessionfinish(self):
        self.path.write_text(
            "".join(f"{name}\n" for name in self.ids), encoding="utf-8"
        )


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory):
    """Keep what interrupted commands leave out of the home of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def torch():
    """Import torch, and make what torchvision is there importable beside it, which dppl would refuse otherwise.

    An index may have torchvision for CUDA only. Beside a torch without CUDA its
    compiled part does not load, and then neither timm nor transformers can be imported,
    though no encoder of the tests needs the operators in it. So the tests declare two
    of them, without which torchvision does not start.
    """
    torch = pytest.importorskip("torch")
    library = torchvision_beside_torch()  # must live as long as its operators
    yield torch
    del library


def torchvision_beside_torch():
    """Declare the operators, where torchvision is there and cannot be imported; return what holds them."""
    library = None
    if find_spec("torchvision") is not None:
        try:
            import_module("torchvision")
        except RuntimeError:
            library = import_module("torch.library").Library("torchvision", "DEF")
            for name in ("nms", "qnms"):
                library.define(
                    f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                )
            import_module("torchvision")
    return library


@pytest.fixture
def letters(monkeypatch):
    """Name a tiny text encoder "letters": how often each letter occurs, in whole numbers. Versions are its weights."""
    from dppl.encoders import load as loading
    from dppl.encoders.tokens import TextAdapter
    from dppl.encoders.windows import TextWindows

    class Letters(TextAdapter):
        def shapes(self):
            return super().shapes()[
                :1
            ]  # all are computed alike, and hundreds of tests load this encoder

    def encode(text, most):
        if "odd" in text:
            raise ValueError(text)
        return {
            "input_ids": np.array(
                [ord(letter) % 27 for letter in text.lower()[:most]], np.int64
            )
        }

    def windows(source):
        return TextWindows.of(encode, 64, source.number("max_windows", 2))

    def compute(arrays):
        counts = arrays["input_ids"][:, :, None] == np.arange(27)
        return (
            (counts & (arrays["attention_mask"][:, :, None] == 1))
            .sum(axis=1)
            .astype(np.float32)
        )

    def load(source, device, precision):
        source.check({"version", "max_windows"})
        return Letters(
            library="tests",
            weights=f"version {source.number('version', 1)}",
            preprocessing="none",
            pooling="none",
            versions="none",
            windows=windows(source),
            compute=compute,
            batch_rows=4,
        )

    monkeypatch.setitem(
        sys.modules, "encoder_of_the_tests", SimpleNamespace(load=load, windows=windows)
    )
    monkeypatch.setitem(loading.MODULES, "letters", "encoder_of_the_tests")
    monkeypatch.setattr(loading, "NAMELESS", {*loading.NAMELESS, "letters"})
    return loading.load_encoder("letters")


@pytest.fixture(scope="session")
def ray_engine():
    """Start Ray on this machine with two cores, one process each; commands in this process use it, too."""
    from dppl.engines import RayEngine

    ray = pytest.importorskip("ray", reason="needs Ray: pip install -e '.[ray]'")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 * 2**20,
    )
    yield RayEngine()
    ray.shutdown()


@pytest.fixture
def by_value(ray_engine, request):
    """Let Ray take classes of a file of tests along, which workers cannot import."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture(scope="module")
def browser():
    """Start the system's Chromium, in one module's tests: Playwright keeps an event loop that asyncio's would meet."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs the extra test-browser"
    )
    pytest.importorskip("axe_playwright_python", reason="needs the extra test-browser")
    path = chromium()
    if path is None:
        pytest.skip("needs a Chromium of the system")
    with playwright.sync_playwright() as started:
        # As root, as in containers, Chromium starts without its sandbox only; the pages
        # are of these tests.
        running = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def context(browser):
    """Return what makes a context of a theme, a size and options once: for a page of a new one, Chromium starts a process."""

    @cache
    def made(theme, size, **options):
        return browser.new_context(viewport=dict(size), color_scheme=theme, **options)

    return made


@pytest.fixture
def visit(context):
    """Open a file or an address in a theme and at a width; a page of its own each time."""
    pages = []

    def open_(place, theme="light", size=WIDE, **options):
        pages.append(context(theme, tuple(size.items()), **options).new_page())
        return Visit(pages[-1], place)

    yield open_
    for page in pages:
        page.close()
