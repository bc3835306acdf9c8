"""Checkpoints: what a run that is killed, stopped or resumed comes to."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import killed_training
import numpy as np
import pytest

import onescan
from onescan import CheckpointError, train

HERE = Path(__file__).parents[1] / "helpers"


def add(state, batch):
    total = state["total"] + batch
    return state | {"total": total}, {"loss": total.sum()}


def begin():
    return {
        "total": jnp.zeros(2),
        "key": jax.random.key(7),
        "half": jnp.ones(3, jnp.bfloat16),
        "empty": jnp.zeros((0, 4)),
        "name": "kept out of the loop",
    }


DATA = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)


def fit(path, data=DATA, step=add, state=None, **options):
    options = {"chunk": 4, "checkpoint_every": 0, "progress": False} | options
    state = begin() if state is None else state
    return train.fit(step, state, data, checkpoint_dir=path, **options)


def tree_of(path):
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    return {str(f.relative_to(path)): f.read_bytes() for f in files}


def assert_same(a, b):
    assert jax.tree.structure(a.state) == jax.tree.structure(b.state)
    for x, y in zip(jax.tree.leaves(a.state), jax.tree.leaves(b.state), strict=True):
        if isinstance(x, str):
            assert x == y
        elif jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            assert (x == y).all()
        else:
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
    np.testing.assert_array_equal(a.metrics["loss"], b.metrics["loss"])
    assert (a.steps, a.stopped) == (b.steps, b.stopped)


def test_a_run_that_is_killed_ends_with_the_same_bits(tmp_path):
    directory = tmp_path / "run"
    script = [sys.executable, str(HERE / "killed_training.py"), str(directory)]
    for last in (74, 123):
        done = subprocess.run([*script, str(last)], capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
    begun = []
    killed_training.to_the_end(str(directory), lambda step, _: begun.append(step))
    assert begun[0] > killed_training.CHUNK  # not from the start
    whole = killed_training.run().metrics["loss"]
    assert np.load(tmp_path / "losses.npy").tobytes() == whole.tobytes()
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    logged = [json.loads(line) for line in lines]
    assert [entry["step"] for entry in logged] == list(range(killed_training.STEPS))
    assert np.float32([e["loss"] for e in logged]).tobytes() == whole.tobytes()


def test_resumes_where_it_was(tmp_path):
    whole = train.fit(add, begin(), DATA, chunk=4, progress=False)
    half = fit(tmp_path / "run", steps=20)
    assert half.steps == 20
    rest = fit(tmp_path / "run", chunk="auto")
    assert_same(rest, whole)
    steps = sorted(int(path.name) for path in (tmp_path / "run" / "steps").iterdir())
    assert steps[-1] == 40
    assert len(steps) <= 3
    calls = []
    again = fit(tmp_path / "run", log=lambda *_: calls.append(1))
    assert_same(again, whole)
    assert not calls


def test_a_run_that_until_ended_stays_ended(tmp_path):
    options = {"until": lambda state, metrics: state["total"][0] > 2}
    ended = fit(tmp_path / "run", jnp.ones((40, 2)), **options)
    assert (ended.steps, ended.stopped) == (3, "until")
    assert_same(fit(tmp_path / "run", jnp.ones((40, 2)), **options), ended)


@pytest.mark.parametrize("kind", ["iterator", "iterable", "function", "skip"])
def test_iterables_resume(tmp_path, kind):
    skipped = []

    class Skips(list):
        def skip(self, count):
            skipped.append(count)
            return iter(self[count:])

    class Loader:
        def __iter__(self):
            return iter(DATA[:16])

    source = {
        "iterator": lambda: iter(np.concatenate([DATA[:16]] * 3)),
        "iterable": Loader,
        "function": lambda: lambda epoch: DATA[:16] * (epoch + 1),
        "skip": lambda: lambda epoch: Skips(DATA[:16]),
    }[kind]
    whole = train.fit(add, begin(), source(), steps=40, chunk=4, progress=False)
    assert whole.steps == 40
    fit(tmp_path / "run", source(), steps=20)
    assert_same(fit(tmp_path / "run", source(), steps=40), whole)
    assert skipped == ([4] if kind == "skip" else [])


def test_too_few_batches_to_skip(tmp_path):
    fit(tmp_path / "run", iter(DATA), steps=20)
    with pytest.raises(onescan.ScanValueError, match="seen 20 batches of epoch 0, but"):
        fit(tmp_path / "run", iter(DATA[:8]), steps=40)


def test_a_foreign_directory_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    before = tree_of(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"holds 'thesis.tex' and no onescan.json"
    ):
        fit(tmp_path)
    assert tree_of(tmp_path) == before
    with pytest.raises(CheckpointError, match=r"thesis.tex is a file, not a directory"):
        fit(tmp_path / "thesis.tex")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    fit(path, steps=20)
    return path


@pytest.fixture
def copied(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def doubled(state, batch):
    return state | {"total": state["total"] + 2 * batch}, {"error": state["total"][0]}


def wide():
    return begin() | {"total": jnp.zeros((3, 2))}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"resume": False}, "holds a run already, and resume is False"),
        (
            {"state": wide()},
            r"there state\['total'\] is float32\[2\], here float32\[3,2\]",
        ),
        ({"state": begin() | {"new": jnp.ones(1)}}, r"state\['new'\] is missing, here"),
        ({"step": doubled}, "there metrics/loss is float32.., here missing"),
        ({"data": DATA[:30]}, "there batches is {'examples': 40, .* here .* 30"),
        ({"chunk": 5}, "there chunk is 4, here 5"),
    ],
    ids=["resume", "shape", "leaf", "metrics", "data", "chunk"],
)
def test_another_run_is_left_alone(copied, options, said):
    before = tree_of(copied)
    with pytest.raises(CheckpointError, match=said):
        fit(copied, **options)
    assert tree_of(copied) == before


def test_another_seed_is_another_run(tmp_path):
    summed = lambda total, batch: (total + batch.sum(), total)
    data = train.batches(DATA, 4)
    fit(tmp_path / "run", data, summed, state=0.0, steps=4)
    with pytest.raises(CheckpointError, match=r"'seed': 0}, here .*'seed': 1}"):
        fit(tmp_path / "run", data, summed, state=0.0, steps=8, seed=1)


def break_marker(path):
    (path / "onescan.json").write_text("{")


def break_format(path):
    (path / "onescan.json").write_text('{"format": 99}')


def break_metrics(path):
    (path / "metrics.bin").write_bytes(b"12345678")


def break_arrays(path):
    for file in (path / "steps" / "20" / "state").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:-9] + b"corrupted")


def break_checksum(path):
    notes = path / "steps" / "20" / "notes" / "metadata"
    found = json.loads(notes.read_text())
    found["checksums"]["0"] ^= 1
    notes.write_text(json.dumps(found))


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (break_marker, "onescan.json cannot be read"),
        (break_format, r"onescan.json cannot be read \(format 99\)"),
        (break_metrics, "metrics.bin holds 8 bytes, but the 20 steps .* measured 80"),
        (break_arrays, "steps/20 cannot be read .* Nothing was changed; move it away"),
        (break_checksum, "steps/20 cannot be read .array 0 is not what was saved"),
    ],
)
def test_a_corrupt_directory_is_left_alone(copied, broken, said):
    broken(copied)
    before = tree_of(copied)
    with pytest.raises(CheckpointError, match=said):
        fit(copied, steps=40)
    assert tree_of(copied) == before


def test_the_checkpoint_before_a_corrupt_one(copied):
    break_arrays(copied)
    shutil.rmtree(copied / "steps" / "20")
    left = sorted(int(path.name) for path in (copied / "steps").iterdir())
    assert left
    whole = train.fit(add, begin(), DATA, chunk=4, progress=False)
    assert_same(fit(copied), whole)


def test_one_process_at_a_time(copied):
    code = "import fcntl,sys; f=open(sys.argv[1],'w'); fcntl.flock(f,2)"
    code += "; print('locked', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(copied / "onescan.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(CheckpointError, match="in use: another process trains"):
            fit(copied)
        assert other.stdin is not None
        other.stdin.close()
    fit(copied)


def test_ctrl_c_saves_and_leaves(tmp_path, capsys):
    def interrupt(step, metrics):
        if step == 12:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    stopped = fit(tmp_path / "run", log=interrupt, progress=True, checkpoint_every=60)
    assert stopped.stopped == "interrupted"
    assert 12 <= stopped.steps < 40
    assert len(stopped.metrics["loss"]) == stopped.steps
    assert signal.getsignal(signal.SIGINT) is before
    told = capsys.readouterr().err.replace("\n", " ")
    assert f"stopped by Ctrl-C after {stopped.steps} steps" in told
    whole = train.fit(add, begin(), DATA, chunk=4, progress=False)
    assert_same(fit(tmp_path / "run"), whole)


def test_ctrl_c_twice_leaves_at_once():
    def interrupt(step, metrics):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        train.fit(add, begin(), DATA, chunk=4, progress=False, log=interrupt)


def test_without_orbax(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with pytest.raises(ImportError, match=r"pip install onescan\[train\]"):
        fit(tmp_path / "run")


def test_orbax_is_imported_only_when_needed():
    code = "import sys, onescan.train; print('orbax' in sys.modules, end='')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False", done.stderr
