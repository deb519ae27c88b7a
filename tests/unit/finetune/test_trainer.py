"""The trainer: what it computes, what it charges, and that an interrupted run never counts too little."""

import math
import sys
from fractions import Fraction

import numpy as np
import pytest

from dppl import ApproxDP, GaussianDP, Ledger
from dppl.audit.audit import audit_release
from dppl.errors import (
    BudgetError,
    BudgetExceeded,
    InputError,
    LedgerError,
    MeasurementError,
    ParameterError,
)
from dppl.finetune import Recipe, select_weights
from dppl.finetune.checkpoint import Checkpoint
from dppl.finetune.gradients import RADIUS, NetworkGradients, PrivateRecords
from dppl.kernel.mechanisms import RoundedGaussian, SampledGaussian
from dppl.kernel.mechanisms.randomness import SystemRandomness
from dppl.kernel.privacy import Guarantee
from dppl.kernel.privacy.guarantee import Charge
from dppl.kernel.privacy.terms import Caveat, Mechanism, PublicInput, Term
from dppl.testing import recorded, replayed
from overhearing import overheard
from unit.finetune.conftest import Trainer

NO_NOISE = GaussianDP(1e6)
ROUGH = ApproxDP(5.0, 1e-5)
ALL = ("head", "norm", "conv")


def make(module, budget=NO_NOISE, *, train=ALL, sparsity=0.2, **options):
    options = {"steps": 3, "batch_size": 40.0, "block": 16, **options}
    return Trainer(
        module, select_weights(module, train, sparsity=sparsity), budget, **options
    )


def flat(module):
    return np.concatenate(
        [p.detach().numpy().ravel() for _, p in module.named_parameters()]
    )


def trained(module, selection):
    masks = []
    for name, weight in module.named_parameters():
        mask = np.zeros(weight.numel(), bool)
        mask[
            slice(None) if selection.get(name, 0) is None else selection.get(name, [])
        ] = True
        masks.append(mask)
    return np.concatenate(masks)


@pytest.mark.parametrize("train", [("head",), ("head", "norm"), ("conv",), ALL])
def test_what_is_not_trained_keeps_its_bits(net, images, train):
    before = flat(net)
    run = make(net, GaussianDP(1.0), train=train).fit(*images)
    after = flat(run.module_)
    mask = trained(net, run.selection)
    assert (after[~mask].view(np.int32) == before[~mask].view(np.int32)).all()
    assert (after[mask] != before[mask]).all()  # noise moves every trained weight
    assert (flat(net) == before).all()


def reference(
    torch, module, selection, X, y, *, steps, batch_size, clip, rate, momentum, warmup
):
    """Train by torch's own optimiser on clipped gradients of one record at a time."""
    from copy import deepcopy

    module = deepcopy(module)
    names = list(selection)
    parameters = [module.get_parameter(name).requires_grad_() for name in names]
    optimiser = torch.optim.SGD(parameters, lr=1.0, momentum=momentum)
    for step in range(steps):
        warm = min(1.0, (step + 1) / warmup)
        optimiser.param_groups[0]["lr"] = (
            rate * warm * (1 + math.cos(math.pi * step / steps)) / 2
        )
        total = [torch.zeros_like(p) for p in parameters]
        for record, code in zip(torch.from_numpy(X), torch.from_numpy(y), strict=True):
            loss = torch.nn.functional.cross_entropy(module(record[None]), code[None])
            parts = list(torch.autograd.grad(loss, parameters))
            for place, name in enumerate(names):
                if selection[name] is not None:
                    mask = torch.zeros(parts[place].numel())
                    mask[torch.from_numpy(selection[name])] = 1
                    parts[place] = parts[place] * mask.reshape(parts[place].shape)
            norm = math.sqrt(sum(float(part.square().sum()) for part in parts))
            for whole, part in zip(total, parts, strict=True):
                whole += part * min(1.0, clip / norm)
        for parameter, whole in zip(parameters, total, strict=True):
            parameter.grad = whole / batch_size
        optimiser.step()
    return flat(module)


@pytest.mark.parametrize("clip", [0.4, 100.0])
def test_without_noise_it_is_the_optimiser_of_torch(torch, net, images, clip):
    options = {"steps": 4, "batch_size": 30.0, "clip": clip, "momentum": 0.9}
    run = make(net, **options, learning_rate=0.5, warmup_steps=2).fit(*images)
    expected = reference(
        torch, net, run.selection, *images, **options, rate=0.5, warmup=2
    )
    moved = np.abs(expected - flat(net)).max()
    assert moved > 0.05
    # Rows are shorter by 2⁻¹⁰, and noise of GaussianDP(1e6) is below 2e-6 clips a step.
    assert np.abs(flat(run.module_) - expected).max() < 0.005 * moved
    other = reference(torch, net, run.selection, *images, **options, rate=0.5, warmup=1)
    assert np.abs(flat(run.module_) - other).max() > 0.02 * moved


def test_each_parameter_has_its_learning_rate(net, images):
    one = make(net, steps=1, learning_rate=0.1).fit(*images)
    other = make(
        net, steps=1, learning_rate=0.01, head_learning_rate=0.1, head="8"
    ).fit(*images)
    moves = [flat(run.module_) - flat(net) for run in (one, other)]
    head = np.arange(len(moves[0])) >= len(moves[0]) - 65
    assert np.allclose(moves[0][head], moves[1][head], atol=1e-6)
    assert np.allclose(moves[0][~head], 10 * moves[1][~head], atol=1e-5)


def test_records_with_negative_positions_are_left_out_and_none_is_fine(net, images):
    X, y = images
    some = np.where(np.arange(40) % 4, y, -1)
    left = make(net).fit(X[some >= 0], y[some >= 0])
    assert np.allclose(
        flat(make(net).fit(X, some).module_), flat(left.module_), atol=1e-5
    )
    assert np.allclose(flat(make(net).fit(X[:0], y[:0]).module_), flat(net), atol=1e-4)


# The promise.


@pytest.mark.parametrize("block", [3, 16, 64])
def test_noise_is_drawn_once_a_step_whatever_the_block(net, images, block):
    with overheard() as heard:
        run = make(net, GaussianDP(1.0), block=block).fit(*images)
    assert len(heard) == run.steps == run.guarantee_.releases[0].times
    assert {released.size for _, released in heard} == {
        trained(net, run.selection).sum()
    }


def test_noise_for_every_block_is_heard(net, images, monkeypatch):
    """A planted fault: each block gets noise of its own."""
    original = NetworkGradients.block_sum

    def noisy(self, *args):
        total = original(self, *args)
        return RoundedGaussian(
            squared_sensitivity=Fraction(RADIUS**2), noise_std=1.0
        ).release(total, SystemRandomness())

    monkeypatch.setattr(NetworkGradients, "block_sum", noisy)
    with overheard() as heard:
        run = make(net, GaussianDP(1.0)).fit(*images)
    assert len(heard) > run.steps


def test_the_full_batch_costs_exactly_what_it_says(net):
    release = make(net, GaussianDP(0.7), steps=11).plan((1, 6, 6)).guarantee.releases[0]
    assert release.sensitivity == RADIUS
    squared = (
        11 * Fraction(RADIUS) ** 2 / Fraction(release.parameters["noise_std"]) ** 2
    )
    assert 0.999999 * 0.7 < math.sqrt(squared) <= release.cost["mu"] <= 0.7


SETTINGS = [
    # epsilon, delta, sampling rate, steps
    (0.5, 1e-5, 0.1, 200),
    (1.13, 1e-5, 0.1, 2000),
    (1.0, 1e-6, 0.01, 1000),
    (8.0, 1e-5, 0.5, 40),
    (0.3, 1e-7, 0.2, 20),
    (2.0, 1e-8, 0.05, 100),
    (5.0, 1e-3, 0.9, 5),
]


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta", "rate", "steps"), SETTINGS)
def test_epsilon_is_that_of_dp_accounting(net, epsilon, delta, rate, steps):
    """By privacy loss distributions on a grid of its own: the noise that is drawn costs what is said, or less."""
    import dp_accounting
    from dp_accounting import pld

    guarantee = (
        make(net, ApproxDP(epsilon, delta), steps=steps, sampling_rate=rate)
        .plan((1, 6, 6))
        .guarantee
    )
    drawn = guarantee.releases[0].parameters
    event = dp_accounting.PoissonSampledDpEvent(
        drawn["sampling_rate"],
        dp_accounting.GaussianDpEvent(drawn["noise_std"] / RADIUS),
    )
    accountant = pld.PLDAccountant(value_discretization_interval=2e-4)
    exact = accountant.compose(
        dp_accounting.SelfComposedDpEvent(event, steps)
    ).get_epsilon(delta)
    assert 0.97 * epsilon < exact <= epsilon
    assert guarantee.epsilon(delta) <= epsilon
    assert guarantee.epsilon(delta) == pytest.approx(
        exact, rel=2e-3
    )  # the grids differ


def test_sampling_is_stated_and_accounted_in_approximate_dp_only(net, images):
    run = make(net, ROUGH, sampling_rate=0.5, steps=4, batch_size=20.0).fit(*images)
    assert run.guarantee_.releases[0].mechanism == Term(
        Mechanism.SAMPLED_ROUNDED_GAUSSIAN
    )
    assert run.guarantee_.releases[0].parameters["sampling_rate"] == 0.5
    with pytest.raises(BudgetError, match="approximate DP"):
        make(net, GaussianDP(1.0), sampling_rate=0.5).plan((1, 6, 6))


def test_samples_are_fresh_and_of_the_stated_rate(net, images, monkeypatch):
    """False alarms: below 1e-9, for 800 coins of 1/2 in a range of 300 to 500 (Hoeffding), and for equal samples."""
    X, y = images
    samples = []
    toss = SampledGaussian.sample

    def watched(self, n, source):
        samples.append(toss(self, n, source))
        return samples[-1]

    taken = []
    monkeypatch.setattr(SampledGaussian, "sample", watched)
    monkeypatch.setattr(
        NetworkGradients,
        "block_sum",
        lambda self, X, *_: taken.append(X) or np.zeros(self.size, int),
    )
    make(net, ROUGH, sampling_rate=0.5, steps=20).fit(
        X, np.where(np.arange(40) < 3, -1, y)
    )
    assert 300 < np.sum(samples) < 500
    assert len({sample.tobytes() for sample in samples}) == 20
    # What is summed are the records of the samples, but for those that are left out.
    expected = np.concatenate([X[3:][sample[3:]] for sample in samples])
    assert (np.concatenate(taken) == expected).all()


def audited(torch):
    """Audit one step by the released sum at the largest coordinate of a canary that is alone or not there."""
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2))
    module.requires_grad_(False)
    for weight in module.parameters():
        weight.zero_()
    canary = np.array([[[100.0, 0.0]]], np.float32)
    plan = Trainer(
        module, {"1.weight": None}, GaussianDP(2.0), steps=1, batch_size=1.0, block=1
    )
    settled = plan.plan((1, 2))

    def release(include):
        count = int(include)
        with overheard() as heard:
            plan.fit(canary[:count], np.zeros(count, int), plan=settled)
        total = heard[0][1]
        return float(total[2] - total[0])

    return audit_release(release, GaussianDP(2.0), runs=300, confidence=1 - 1e-6)


@pytest.mark.audit
def test_an_audit_finds_nothing_but_a_quarter_of_the_noise_planted(torch, monkeypatch):
    """False alarms: at most 1e-6. A quarter of the noise puts the sides 8 standard deviations apart."""
    honest = audited(torch)
    assert not honest.violation
    inside, outside = honest.samples
    assert np.mean(inside) - np.mean(outside) > 1.5 * np.std(outside)
    original = SystemRandomness.rounded_gaussian
    monkeypatch.setattr(
        SystemRandomness,
        "rounded_gaussian",
        lambda self, std, shape: original(self, std / 4, shape),
    )
    assert audited(torch).violation


def test_the_ledger_is_charged_before_the_first_step(
    net, images, tmp_path, monkeypatch
):
    ledger = Ledger(tmp_path / "ledger.db", "images", GaussianDP(1.0))
    charges = []
    original = NetworkGradients.block_sum
    monkeypatch.setattr(
        NetworkGradients,
        "block_sum",
        lambda self, *args: (
            charges.append(len(ledger.releases())) or original(self, *args)
        ),
    )
    run = make(net, GaussianDP(0.8)).fit(*images, ledger=ledger)
    assert set(charges) == {1}
    assert run.guarantee_.charges == (Charge("images", 1),)
    assert ledger.releases()[0]["status"] == "not saved"
    charges.clear()
    with overheard() as heard, pytest.raises(BudgetExceeded):
        make(net, GaussianDP(0.8)).fit(*images, ledger=ledger)
    assert not heard
    assert not charges
    with pytest.raises(BudgetError, match="a ledger cannot charge it"):
        make(net, ROUGH, sampling_rate=0.5).fit(*images, ledger=ledger)


def test_the_statement_says_what_it_rests_on(net, images):
    guarantee = make(net, GaussianDP(1.0), random_state=0).fit(*images).guarantee_
    assert not guarantee.secure_noise
    assert guarantee.exact  # sums of integers, and noise that is exactly rounded
    assert Term(PublicInput.MODULE) in guarantee.public_inputs
    assert Guarantee.from_dict(guarantee.to_dict()).to_dict() == guarantee.to_dict()
    again = make(net, GaussianDP(1.0), random_state=0).fit(*images)
    assert (
        flat(again.module_)
        == flat(make(net, GaussianDP(1.0), random_state=0).fit(*images).module_)
    ).all()


def test_that_records_are_computed_side_by_side_is_stated(net):
    first = make(net).plan((1, 6, 6)).guarantee.not_covered[0]
    assert first == Term(Caveat.COMPUTED_TOGETHER)
    assert "computed with it" not in str(make(net, block=1).plan((1, 6, 6)).guarantee)


def test_what_a_module_keeps_of_its_calls_is_not_published(torch, net, images):
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return self.net(x)

    trained = make(Counts()).fit(*images)
    assert trained.module_.calls == 0


def test_it_learns_the_same_weights_from_a_transcript_without_any_records(net, images):
    """The trainer has nothing of the records but noisy sums."""
    X, y = images
    run = make(net, GaussianDP(1.0))
    with recorded() as asked:
        weights = flat(run.fit(X, y).module_)
    assert [one.name for one in asked] == ["gradients"] * run.steps
    with replayed(asked):
        assert (flat(run.fit(X[:0], y[:0]).module_) == weights).all()


def test_a_trainer_that_asks_once_more_is_refused(net, images):
    run = make(net, GaussianDP(1.0))
    plan = run.plan((1, 6, 6))
    plan.steps += 1
    with (
        overheard() as heard,
        pytest.raises(MeasurementError, match="'gradients' was declared for 3 asks"),
    ):
        run.fit(*images, plan=plan)
    assert len(heard) == 3


def test_steps_that_an_interrupted_run_has_begun_are_spent(net, images):
    plan = make(net, GaussianDP(1.0)).plan((1, 6, 6))
    with PrivateRecords(*images, np.arange(5), "error").counter(
        plan.measurements, None, used=2
    ) as measure:
        measure("gradients", weights=np.zeros(plan.gradients.size))
        with pytest.raises(MeasurementError):
            measure("gradients", weights=np.zeros(plan.gradients.size))


def test_gradients_are_asked_at_weights_of_the_declared_shape_alone(net, images):
    plan = make(net, GaussianDP(1.0)).plan((1, 6, 6))
    with PrivateRecords(*images, np.arange(5), "error").counter(
        plan.measurements, None, used=0
    ) as measure:
        with (
            overheard() as heard,
            pytest.raises(MeasurementError, match="weights must have the shape"),
        ):
            measure("gradients", weights=np.zeros(3))
        with pytest.raises(TypeError):  # a method chooses no samples
            measure(
                "gradients",
                weights=np.zeros(plan.gradients.size),
                taken=np.arange(40) < 1,
            )
    assert not heard


# Interruptions.


class Killed(BaseException):
    pass


def interrupted(run, lines):
    """Run until so many lines of the trainer and its checkpoint were executed, and return whether it ended before."""
    left = lines
    files = (
        "finetune/trainer.py",
        "finetune/checkpoint.py",
        "kernel/measure.py",
        "kernel/mechanisms/gaussian.py",
        "kernel/privacy/ledger.py",
    )

    def trace(frame, event, arg):
        nonlocal left
        if not frame.f_code.co_filename.endswith(files):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise Killed
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    except Killed:
        return False
    finally:
        sys.settrace(before)
    return True


def killed_at_random(torch, path, seed, *, ledger=None, copies=False):
    """Kill a run again and again until one ends; return how many sums were released, and how many were promised.

    With `copies` any state that a file ever had may be the one to go on from.
    """
    rng = np.random.default_rng(seed)
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
    X = rng.normal(size=(6, 2, 2)).astype(np.float32)
    y = np.arange(6) % 2
    run = Trainer(
        module,
        dict.fromkeys(["1.weight", "1.bias"]),
        GaussianDP(1.0),
        steps=12,
        batch_size=6.0,
        block=6,
    )
    plan = run.plan((2, 2))
    kept = []
    ended = False
    refused = 0
    with overheard() as heard:
        while not ended and refused < 30:
            try:
                ended = interrupted(
                    lambda: run.fit(X, y, plan=plan, checkpoint=path, ledger=ledger),
                    rng.integers(300, 700),
                )
            except (InputError, LedgerError):
                refused += 1
            if copies and path.exists():
                kept.append(path.read_bytes())
                path.write_bytes(kept[rng.integers(len(kept))])
    return len(heard), run.steps


def test_thirty_kills_at_random_and_no_run_draws_more_than_it_says(torch, tmp_path):
    drawn = [
        killed_at_random(torch, tmp_path / f"{seed}.ckpt", seed) for seed in range(30)
    ]
    assert all(count <= promised for count, promised in drawn)
    assert any(
        count < promised for count, promised in drawn
    )  # steps were lost, so runs were killed inside them


def test_a_checkpoint_that_loses_the_account_is_found(torch, tmp_path, monkeypatch):
    """A planted fault: the file says what has ended, not what has begun."""
    original = Checkpoint.write
    monkeypatch.setattr(
        Checkpoint,
        "write",
        lambda self, state, begun: original(self, state, state.begun),
    )
    drawn = [
        killed_at_random(torch, tmp_path / f"{seed}.ckpt", seed) for seed in range(30)
    ]
    assert any(count > promised for count, promised in drawn)


def paid_and_killed(torch, tmp_path, *, copies):
    """Return for ten runs what was released and promised, and the charges of each."""
    drawn = []
    charges = []
    for seed in range(10):
        ledger = Ledger(tmp_path / f"{seed}.db", "images", GaussianDP(100.0))
        drawn.append(
            killed_at_random(
                torch, tmp_path / f"{seed}.ckpt", seed, ledger=ledger, copies=copies
            )
        )
        charges.append(len(ledger.releases()))
    return drawn, charges


def test_kills_with_a_ledger_lose_no_paid_run(torch, tmp_path):
    """One charge pays for all that follow, also for a run that was killed before its first step."""
    drawn, charges = paid_and_killed(torch, tmp_path, copies=False)
    assert all(0 < count <= promised for count, promised in drawn)
    assert charges == [1] * len(drawn)


def test_from_copies_of_a_checkpoint_no_charge_pays_for_more_steps_than_it_says(
    torch, tmp_path
):
    drawn, charges = paid_and_killed(torch, tmp_path, copies=True)
    assert all(
        count <= n * promised
        for (count, promised), n in zip(drawn, charges, strict=True)
    )


def test_a_ledger_that_does_not_count_steps_is_found(torch, tmp_path, monkeypatch):
    """A planted fault: whoever has a copy goes on."""
    monkeypatch.setattr(Ledger, "begin_step", lambda self, entry, step: None)
    drawn, charges = paid_and_killed(torch, tmp_path, copies=True)
    assert any(
        count > n * promised
        for (count, promised), n in zip(drawn, charges, strict=True)
    )


def test_of_two_runs_from_one_state_one_goes_on(net, images, tmp_path):
    """At the same time: the second begins in the midst of the first."""
    ledger = Ledger(tmp_path / "ledger.db", "images", GaussianDP(10.0))
    path = tmp_path / "run.ckpt"
    copy = tmp_path / "copy.ckpt"

    def other(step):
        if step == 2:
            copy.write_bytes(path.read_bytes())
            make(net, GaussianDP(1.0), steps=6).fit(
                *images, ledger=ledger, checkpoint=copy
            )

    with (
        overheard() as heard,
        pytest.raises(
            LedgerError, match="step 3 of the training that release 1 of 'images'"
        ),
    ):
        make(net, GaussianDP(1.0), steps=6).fit(
            *images, ledger=ledger, checkpoint=path, progress=other
        )
    assert (len(heard), len(ledger.releases())) == (6, 1)


def test_a_charge_of_that_number_in_another_ledger_pays_for_nothing(
    net, images, tmp_path
):
    def stop(step):
        raise Killed

    path, one, two = (tmp_path / name for name in ("run.ckpt", "one.db", "two.db"))
    first = Ledger(one, "images", GaussianDP(10.0))
    with pytest.raises(Killed):
        make(net, GaussianDP(1.0)).fit(
            *images, ledger=first, checkpoint=path, progress=stop
        )
    other = Ledger(two, "images", GaussianDP(10.0))
    other.charge(
        make(net, GaussianDP(0.1)).plan((1, 6, 6)).guarantee
    )  # release 1, unfinished, and cheap
    make(net, GaussianDP(1.0)).fit(*images, ledger=other, checkpoint=path)
    assert [release["cost"]["mu"] > 0.9 for release in other.releases()] == [
        False,
        True,
    ]


def test_a_run_that_goes_on_ends_where_an_uninterrupted_one_does(net, images, tmp_path):
    """Stopped between two steps, with hardly any noise; momentum and schedule go on."""
    path = tmp_path / "run.ckpt"
    options = {"steps": 6, "learning_rate": 0.3, "warmup_steps": 2}
    seen = []

    def stop(step):
        seen.append(step)
        if step == 3 and len(seen) == 3:
            raise Killed

    with pytest.raises(Killed):
        make(net, **options).fit(*images, checkpoint=path, progress=stop)
    # The file holds the state from before step 3, which counts as begun: it is lost.
    resumed = make(net, **options).fit(*images, checkpoint=path, progress=stop)
    assert seen == [1, 2, 3, 4, 5, 6]
    whole = make(net, **options).fit(*images)
    moved = np.abs(flat(whole.module_) - flat(net)).max()
    assert 0 < np.abs(flat(resumed.module_) - flat(whole.module_)).max() < 0.5 * moved
    with overheard() as heard:
        again = make(net, **options).fit(*images, checkpoint=path)
    assert not heard
    assert (flat(again.module_) == flat(resumed.module_)).all()


def test_a_run_that_goes_on_is_charged_once(net, images, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "images", GaussianDP(10.0))
    path = tmp_path / "run.ckpt"
    copy = tmp_path / "copy.ckpt"

    def stop(step):
        raise Killed

    with pytest.raises(Killed) as caught:
        make(net, GaussianDP(1.0)).fit(
            *images, ledger=ledger, checkpoint=path, progress=stop
        )
    assert caught.value.__notes__ == ["The ledger keeps the charge: images, release 1."]
    copy.write_bytes(path.read_bytes())
    make(net, GaussianDP(1.0)).fit(*images, ledger=ledger, checkpoint=path)
    assert len(ledger.releases()) == 1
    with overheard() as heard:
        make(net, GaussianDP(1.0)).fit(
            *images, ledger=ledger, checkpoint=path
        )  # it has ended
    assert (len(heard), len(ledger.releases())) == (0, 1)
    # A second run from a copy would draw again.
    before = copy.read_bytes()
    with (
        overheard() as heard,
        pytest.raises(
            InputError, match="knows of 3 steps of this run, and the checkpoint of 1"
        ),
    ):
        make(net, GaussianDP(1.0)).fit(*images, ledger=ledger, checkpoint=copy)
    assert (len(heard), len(ledger.releases())) == (0, 1)
    assert copy.read_bytes() == before


def test_checkpoints_of_other_runs_are_refused(torch, net, images, tmp_path):
    path = tmp_path / "run.ckpt"
    make(net).fit(*images, checkpoint=path)
    for name, value in {"clip": 2.0, "precision": "bfloat16"}.items():
        with pytest.raises(ParameterError, match=f"with another {name}; repeat"):
            make(net, **{name: value}).fit(*images, checkpoint=path)
    with pytest.raises(
        ParameterError,
        match="another batch_size, another head_learning_rate, another learning",
    ):
        make(net, batch_size=41.0, sparsity=0.3, learning_rate=0.2).fit(
            *images, checkpoint=path
        )
    with torch.no_grad():
        net[0].weight[0, 0, 0, 0] += 1e-3
    with pytest.raises(ParameterError, match="another module"):
        make(net).fit(*images, checkpoint=path)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(InputError, match="damaged, or not a checkpoint"):
        make(net).fit(*images, checkpoint=path)
    with pytest.raises(ParameterError, match="repeat its noise"):
        make(net, random_state=0).fit(*images, checkpoint=tmp_path / "new.ckpt")


def test_two_runs_do_not_share_a_checkpoint(net, images, tmp_path):
    path = tmp_path / "run.ckpt"
    with (
        Checkpoint(path, {}).held(),
        pytest.raises(InputError, match="another run holds"),
    ):
        make(net).fit(*images, checkpoint=path)


# Parameters and inputs.


def test_parameters_are_checked(net):
    with pytest.raises(ParameterError, match="random_state"):
        make(net, random_state=-1).plan((1, 6, 6))
    wrong = {
        "epochs": 0,
        "batch_size": 0,
        "clip": -1.0,
        "momentum": 1.0,
        "warmup_epochs": -1,
        "learning_rate": 0.0,
        "block": 2.5,
        "precision": "float16",
    }
    for name, value in (wrong | {"head_learning_rate": "1"}).items():
        with pytest.raises(ParameterError, match=name):
            Recipe(**{name: value})


def test_weights_must_be_those_of_the_module(net):
    for selection in ({}, {"nowhere.weight": None}):
        with pytest.raises(ParameterError, match="selection"):
            Trainer(net, selection, NO_NOISE, steps=1, batch_size=1.0).plan((1, 6, 6))
    bad = ([3, 3], [-1, 2], [3, 60], [5, 2], [1.0, 2.0], [True] * 60, [[1, 2]], [])
    for places in (
        *(np.array(places) for places in bad),
        [1, 2],
        np.array([], np.int64),
        np.array([3, 60]),
    ):
        with pytest.raises(
            ParameterError, match="selection must give None or flat positions"
        ):
            Trainer(net, {"8.weight": places}, NO_NOISE, steps=1, batch_size=1.0).plan(
                (1, 6, 6)
            )
    with pytest.raises(ParameterError, match="budget"):
        Trainer(net, {"8.weight": None}, 1.0, steps=1, batch_size=1.0).plan((1, 6, 6))


def test_arrays_that_torch_does_not_take_are_read_or_refused_before_the_charge(
    net, images, tmp_path
):
    X, y = images
    ledger = Ledger(tmp_path / "ledger.db", "images", GaussianDP(10.0))
    with pytest.raises(InputError, match="array of numbers"):
        make(net, GaussianDP(1.0)).fit(X.astype(np.longdouble), y, ledger=ledger)
    assert not ledger.releases()
    swapped = make(net).fit(X.astype(X.dtype.newbyteorder("S")), y)
    assert np.allclose(
        flat(swapped.module_), flat(make(net).fit(X, y).module_), atol=1e-5
    )


def test_numbers_of_numpy_are_parameters(net, images, tmp_path):
    path = tmp_path / "run.ckpt"
    numbers = {"batch_size": np.int64(40), "clip": np.float32(1), "steps": np.int32(3)}
    make(net, **numbers, learning_rate=np.float64(0.1)).fit(*images, checkpoint=path)
    with overheard() as heard:
        make(net, batch_size=40, clip=1.0, learning_rate=0.1).fit(
            *images, checkpoint=path
        )
    assert not heard


def test_messages_show_no_private_value(net, images):
    X, y = images
    for rows in ([["Jane"]], np.zeros((3, 0)), np.zeros(3), [[[1.0]], [[2.0, 3.0]]]):
        with pytest.raises(InputError, match="array of numbers"):
            make(net).fit(rows, [0])
    with pytest.raises(InputError):
        make(net).fit(X, y[:-1])
