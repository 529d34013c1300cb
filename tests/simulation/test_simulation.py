"""A few worlds in every test run; `make sim` runs hundreds."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from rookery.coordinators.txn import end_txn, init, transaction
from tests.simulation.bank_run import BankRun
from tests.simulation.scenarios import SCENARIOS, simulate
from tests.simulation.world import World

_EPOCHS = 4


# A world of a cluster takes as long as several of one node.
_WORLDS = [(name, seed) for name, each in SCENARIOS.items() for seed in ((1, 2) if each.cluster is None else (1,))]


@pytest.mark.parametrize(("name", "seed"), _WORLDS)
def test_worlds_are_clean(name: str, seed: int) -> None:
    scenario = SCENARIOS[name]
    outcome = simulate(seed, replace(scenario, faults_s=15.0 if scenario.cluster is None else 6.0))
    assert not outcome.violations, "\n".join(map(str, outcome.violations))
    assert all(outcome.counts[:3]), outcome.counts


def test_epochs_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producer ids are soon replaced if there are only a few epochs per id."""
    for module in (transaction, end_txn, init):
        monkeypatch.setattr(module, "EPOCH_MAX", _EPOCHS)
    for module in (transaction, end_txn):
        monkeypatch.setattr(module, "LAST_EPOCH", _EPOCHS - 1)
    for seed in range(1, 4):
        world = World(seed)
        run = BankRun(world, replace(SCENARIOS["bank"], faults_s=15.0))
        world.run(run.main())
        assert not world.violations.found, "\n".join(map(str, world.violations.found))
        assert run.counts.acknowledged > _EPOCHS * len(run.posts)
        # If the protocol is always the classic one, one id may be enough.
        assert any(len(post.producer_ids) > 1 for post in run.posts)
        assert all(post.identity.producer_epoch < _EPOCHS for post in run.posts)


@pytest.mark.timeout(600)
def test_a_seed_decides_everything() -> None:
    """Other processes, where sets and memory addresses have another order, give the same events.

    In the one, all worlds run in the same process; in the other, two at a time run in their own ones.
    """
    command = [sys.executable, "-m", "tests.simulation", "--digest", "--seconds", "12", "--seeds", "1..10", "--jobs"]
    runs = [
        subprocess.Popen([*command, jobs], env=os.environ | {"PYTHONHASHSEED": hash_seed}, stdout=subprocess.PIPE)
        for hash_seed, jobs in (("1", "1"), ("2", "2"))
    ]
    first, second = (run.communicate()[0] for run in runs)
    assert first
    assert first == second


def test_seeds_differ() -> None:
    scenario = replace(SCENARIOS["processes"], faults_s=1.0)
    assert simulate(1, scenario).digest != simulate(2, scenario).digest
