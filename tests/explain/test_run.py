"""How a loop runs, as `explain` tells it: decisions, places, memory, advice."""

import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from gpu_lowering import H200, as_if_on

import onescan
from onescan import compat, switches
from onescan.explain import explain_loop
from onescan.explain.advice import advice_for
from onescan.explain.decide import Decision, decide
from onescan.explain.memory import memory_of
from onescan.explain.notes import Note
from onescan.explain.run import OnPlatform
from onescan.explain.words import size
from onescan.lowering import pipeline
from onescan.targets.cpu.target import Cpu
from onescan.tune.choose import Choice
from onescan.tune.speed import Speed

sys.path.insert(0, str(Path(__file__).parents[2]))
from examples.llama.config import CONFIGS
from examples.llama.explain import explain_llama

f32 = jnp.float32
spec = jax.ShapeDtypeStruct
WEIGHTS = jnp.ones((64, 64)), jnp.ones((64, 64)), jnp.ones((64, 32))


def cell(h, x):
    w, u, _ = WEIGHTS
    return jnp.tanh(x @ w + h @ u)


def recurrent(h, x):
    h = cell(h, x)
    scale = jnp.sqrt(jnp.sum(WEIGHTS[0] ** 2))
    y = h @ WEIGHTS[2] * scale
    return h, y


def large(c, x):
    return c @ x, None


def rare(c, x):
    return c + jax.lax.reduce(x[None], 0.0, jnp.hypot, (0,)), None


def prints(c, x):
    jax.debug.print("{}", c)
    return c + x, c


def collects(c, x):
    total, h = c
    h = jnp.tanh(h @ WEIGHTS[0] + x)
    return (total + h.T @ x, h), None


LOOPS = {
    "recurrent": (recurrent, spec((8, 64), f32), spec((100, 8, 64), f32)),
    "lanes": (lambda c, x: (0.5 * c + x, c), spec((300,), f32), spec((100, 300), f32)),
    "long": (lambda c, x: (0.5 * c + x, c), spec((), f32), spec((9000,), f32)),
    "large": (large, spec((512, 512), f32), spec((9, 512, 512), f32)),
    "prints": (prints, spec((), f32), spec((10,), f32)),
    "one": (lambda c, x: (c + x, c), spec((3,), f32), spec((1, 3), f32)),
    "collects": (
        collects,
        (spec((64, 64), f32), spec((4, 64), f32)),
        spec((50, 4, 64), f32),
    ),
}


@pytest.fixture(scope="module")
def told():
    return {name: onescan.explain(*loop) for name, loop in LOOPS.items()}


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("name", LOOPS)
def test_decides_as_the_pipeline_does(told, name, platform):
    loop = told[name].loop
    decision = decide(loop, platform)
    with switches.using(engine="auto"), as_if_on(H200):
        outcome = pipeline.compile_loop(loop, platform, switches.current())
    if loop.body.effects:  # which the hook looks at before the pipeline
        assert decision.reason.startswith("the body has side effects")
        return
    assert decision.reason == getattr(outcome, "reason", None)
    done = tuple(dict.fromkeys(split.name for split in decision.splits))
    assert done == outcome.passes


def test_the_verdict_of_each_platform(told):
    cpu, gpu = told["recurrent"].run.platforms
    assert cpu.verdict == gpu.verdict == "The whole loop becomes one native kernel."
    assert cpu.layout.startswith("8 independent lanes; vectors of")
    assert gpu.layout.startswith("8 independent lanes; a block of")
    assert "no GPU here" in gpu.device or "this machine" in gpu.device
    assert told["large"].run.default.verdict.startswith("XLA runs this loop: each step")


def test_blocks_that_share_an_axis_say_so():
    def step(c, x):
        return jnp.tanh(c + x * jnp.mean(c)), None

    told = onescan.explain(step, spec((512, 64), f32), spec((9,), f32))
    assert told.run.platforms[1].layout.endswith(
        "8 blocks of 256 threads for all of it, which share an axis: 64 of its 512 "
        "positions each"
    )


def test_notes_name_the_users_lines(told):
    line = cell.__code__.co_firstlineno + 2
    notes = [str(note) for note in told["recurrent"].run.platforms[0].notes]
    share = 8 * 64 * 64 / told["recurrent"].run.step.operations
    assert (
        f"`x @ w` (test_run.py:{line}) needs no carry, so is computed for all "
        "100 steps at once, before the loop. "
        f"This is {share:.0%} of a step's work; it "
    ) in [note.split("saves")[0].split("is worth")[0] for note in notes]
    assert any("is the same in every step, so computed once" in note for note in notes)
    assert any("feeds only y, so is computed for all 100" in note for note in notes)
    adds = [str(note) for note in told["collects"].run.platforms[0].notes]
    assert any("only added up over the steps" in note for note in adds), adds


def test_what_was_done_has_a_worth_in_time():
    """Of a product with many rows the memory is read once, so moving it pays."""
    w, u = jnp.ones((256, 256)), jnp.ones((256, 256))

    def step(h, x):
        return jnp.tanh(x @ w + h @ u), h

    h, xs = spec((4, 256), f32), spec((100, 4, 256), f32)
    cpu, gpu = onescan.explain(step, h, xs).run.platforms
    (note,) = [note for note in cpu.notes if note.name == "hoist"]
    speed = cpu.decision.speed
    assert 0 < note.saved < speed.xla
    assert str(note).endswith(" a step.")
    assert "; it saves about " in str(note)
    assert all(note.saved is None for note in gpu.notes)  # no costs are known there


def test_a_worth_may_be_none():
    assert str(Note("hoist", "It is so.", 0.5, True, -1e-6)) == (
        "It is so. This is 50% of a step's work; it is worth little time."
    )
    assert str(Note("derive", "It is so.", saved=2e-6)) == (
        "It is so. It saves about 2 us a step."
    )
    assert str(Note("simplify", "It is so.")) == "It is so."


def test_seconds_of_a_step_by_both_engines(told):
    cpu, gpu = told["recurrent"].run.platforms
    speed = cpu.decision.speed
    with switches.using(engine="auto", tune=False):
        loop, settings = told["recurrent"].loop, switches.current()
        outcome = pipeline.compile_loop(loop, "cpu", settings)
    if not speed.measured:
        assert speed == outcome.speed
    assert re.fullmatch(
        r"A step of what is left of the loop takes (about )?\S+ \wss?, 100 steps "
        r"(about )?\S+ \wss?; by XLA a step would take (about )?\S+ \wss? "
        r"\((predicted, to a factor of two or so|measured on this machine)\)\.",
        cpu.speed,
    ), cpu.speed
    assert "by XLA a step would take about 12 us (predicted" in gpu.speed
    assert cpu.to_dict()["seconds_per_step"]["native"] == speed.native
    assert cpu.speed in re.sub(r"\s+", " ", str(told["recurrent"]))
    assert cpu.speed in told["recurrent"]._repr_html_()
    left = told["large"].run.platforms[0]
    assert left.decision.speed.native is None
    assert left.speed.startswith("A step of the loop takes about ")
    assert "would take" not in left.speed


def test_a_loop_that_xla_runs_faster(monkeypatch, told):
    slow = Choice(False, Speed(native=3e-6, xla=1e-6, measured=True))
    monkeypatch.setattr(Cpu, "choice", lambda *_: slow)
    decision = decide(told["lanes"].loop, "cpu")
    assert decision.reason == (
        "XLA is faster, measured on this machine (3 us, XLA 1 us)"
    )
    assert OnPlatform(decision).speed == (
        "A step of the loop takes 1 us, 100 steps 100 us; as a kernel of ours a step "
        "would take 3 us (measured on this machine)."
    )


def test_lines_are_marked_where_they_run(told):
    functions = told["recurrent"].functions["cpu"]
    assert [f.name for f in functions] == ["recurrent", "cell"]
    marks = {
        line.text.strip(): line.places
        for function in functions
        for line in function.lines
    }
    assert marks["h = cell(h, x)"] == ("before", "kernel")
    assert marks["scale = jnp.sqrt(jnp.sum(WEIGHTS[0] ** 2))"] == ("once",)
    assert marks["y = h @ WEIGHTS[2] * scale"] == ("after",)
    assert marks["return jnp.tanh(x @ w + h @ u)"] == ("before", "kernel")
    assert marks["return h, y"] == ()
    assert sum(line.share for line in functions[0].lines) == pytest.approx(1)
    kinds = {
        p for f in told["large"].functions["cpu"] for n in f.lines for p in n.places
    }
    assert kinds == {"xla"}


def test_a_step_is_counted(told):
    step = told["large"].run.step
    assert step.operations == step.products == 512**3
    assert (step.carry, step.x, step.y, step.constants) == (1 << 20, 1 << 20, 0, 0)
    assert step.touched == 3 << 20
    assert step.intensity == 512**3 / (3 << 20)


def test_memory_of_a_gradient_is_what_jax_keeps():
    def body(c, x):
        return jnp.sin(c) * x, None

    told = onescan.explain(body, spec((1000,), f32), spec((100, 1000), f32))
    memory = memory_of(told.loop)
    assert memory.forward == 4000 * 2 + 400_000
    by_name = {choice.checkpoint: choice for choice in memory.choices}
    # per step: cos(c), and sin(c) for the gradient of x
    assert by_name[None].kept == 2 * 400_000
    assert memory.residuals == 8000
    # ten segments of ten steps; so short a loop is cut in the same way by "log"
    assert by_name["sqrt"].kept == 10 * 4000 + 10 * 8000
    assert by_name["sqrt"].again == 1
    assert by_name["log"].kept == by_name["sqrt"].kept
    long = onescan.explain(body, spec((1000,), f32), spec((100_000, 1000), f32))
    kept = {c.checkpoint: (c.kept, c.again) for c in memory_of(long.loop).choices}
    assert kept[None][0] > 100 * kept["sqrt"][0] > 100 * kept["log"][0]
    assert kept[None][1] < kept["sqrt"][1] < kept["log"][1]


def test_why_there_is_no_gradient(told):
    numbers = onescan.explain(lambda c, x: (c + x, c), 0, [1, 2, 3])
    assert numbers.run.memory.why_no_gradient == (
        "nothing that goes into this loop has a derivative"
    )

    def waits(c, x):
        return jax.lax.while_loop(lambda v: v < 10, lambda v: v * x, c), None

    never = onescan.explain(waits, 1.0, jnp.full(3, 2.0))
    assert "Reverse-mode differentiation does not work" in (
        never.run.memory.why_no_gradient
    )


def test_advice(told):
    line = rare.__code__.co_firstlineno + 1
    left = onescan.explain(rare, spec((), f32), spec((10,), f32))
    assert left.run.advice[0].startswith(
        f"`reduce` at test_run.py:{line} keeps this loop on XLA."
    )
    assert "Return what you print or call back as ys" in told["prints"].run.advice[0]
    small = onescan.explain(lambda c, x: (c * x, c), 1.0, jnp.ones(5))
    assert "`jax.vmap`" in small.run.advice[0]


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("`sort` at sim.py:41 has no native rule", "`sort` at sim.py:41 keeps this l"),
        ("a loop of one step needs no loop", "Nothing to do: there is no loop to"),
        ("one step holds 900 KiB of values, more", "A smaller batch in a call"),
    ],
)
def test_what_can_be_done_about_a_reason(told, reason, advice):
    decision = Decision("cpu", told["large"].loop, reason=reason)
    (text,) = advice_for(decision)
    assert text.startswith(advice)
    assert advice_for(Decision("cpu", told["large"].loop, reason="because")) == []


def test_seven_billion_parameters_from_shapes_alone():
    told = explain_llama(CONFIGS["7b"])
    assert told.run.step.operations > 4e11
    assert size(told.run.memory.xs) == "25.9 GB"
    names = [function.name for function in told.functions["cpu"]]
    assert names[:2] == ["inner", "decoder_block"]
    assert "attention" in names


def test_to_dict_tells_the_run(told):
    run = told["recurrent"].to_dict()["run"]
    assert run["platforms"]["cpu"]["engine"] == "native"
    assert run["operations_per_step"] == told["recurrent"].run.step.operations
    assert set(run["memory"]["gradient"]) == {"None", "sqrt", "log"}


def test_rows_of_a_report_explain_themselves():
    onescan.clear_report()

    def smooth(c, x):
        c = 0.9 * c + 0.1 * x
        return c, c

    def loss(xs):
        return onescan.scan(smooth, 0.0, xs)[1].sum()

    jax.grad(loss)(jnp.arange(5.0))
    report = onescan.report()
    assert len(report) == len(report.rows)
    told = report[0].explain()
    assert told.name == "smooth"
    assert told.steps == ()
    assert "smooth (test_run.py:" in str(told)
    assert any("made by JAX for a gradient" in row.explain().title for row in report)
    gradient = report[-1].explain().run.memory
    assert gradient.why_no_gradient == "this loop is itself a part of one"
    onescan.clear_report()
    with pytest.raises(
        onescan.ScanValueError, match=r"smooth .* can no longer be explained.*last 32"
    ):
        report[0].explain()


def test_a_program_may_leave_a_loop_that_would_be_native():
    onescan.clear_report()
    body = lambda c, x: (c + x, c)
    platforms = {"lowering_platforms": ("cpu", "cuda")}
    run = jax.jit(lambda xs: onescan.scan(body, 0.0, xs))
    run.trace(jnp.ones(3)).lower(**platforms)
    (row,) = onescan.report()
    told = row.explain()
    around = f"In this program XLA ran the loop: {row.reason}. By itself:"
    assert told.run.in_its_program == around
    assert "compiled for several platforms" in around
    assert around in " ".join(str(told).split())
    assert around in told._repr_html_()
    assert told.run.default.engine == "native"
    assert onescan.explain(body, 0.0, jnp.ones(3)).run.in_its_program is None


def test_arguments_keep_their_names_in_a_report():
    onescan.clear_report()

    def body(state, x):
        return {"a": state["a"] + x["v"], "b": 2.0 * state["b"]}, state["b"]

    xs = {"v": jnp.ones(3)}
    jax.jit(lambda: onescan.scan(body, {"a": 0.0, "b": 1.0}, xs))()
    listing = dict(onescan.report()[0].explain().listings())
    assert "state['a']" in listing["carry"].replace('"', "'").replace("\\", "")


def test_no_loop_without_jit():
    with jax.disable_jit():
        told = onescan.explain(lambda c, x: (c + x, c), 0, [1, 2, 3])
        assert "How it runs" not in str(told)
        assert told.to_dict()["run"] is None
        with pytest.raises(
            onescan.ScanValueError, match=r"jax\.disable_jit is in force"
        ):
            told.run  # noqa: B018
        assert "there is nothing to run" in told._repr_html_()


def test_positions_are_those_of_the_user(told):
    loop = told["recurrent"].loop
    found = {
        p.function for eqn in loop.body.jaxpr.eqns for p in compat.positions_of(eqn)
    }
    assert {"recurrent", "cell"} <= {name.rpartition(".")[2] for name in found}
    assert explain_loop(loop).title.startswith("recurrent (test_run.py:")
