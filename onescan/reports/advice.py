"""What a user can do about a loop that was left to XLA, for each kind of reason."""

from __future__ import annotations

import re

#: words in a reason, and what to do; the first that is found counts
ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"side effects",
        "Return what you print or call back as ys, and use it after the loop.",
    ),
    (
        r"sharded over",
        "Call the loop in jax.shard_map, where each device's part is its own loop.",
    ),
    (r"several platforms", "Compile for one platform."),
    (r"exported", "Nothing to do: where it runs, onescan may not be installed."),
    (r"engine\(\"xla\"\)", "Take the region away, or put it around both loops."),
    (r"no steps", "Nothing to do."),
    (r"one step needs no loop", "Nothing to do: there is no loop to speed up."),
    (
        r"`sort` .* is over",
        "Sort before the loop if what is sorted does not change in it, or take the "
        "largest with jax.lax.top_k; otherwise XLA's sort is the right one.",
    ),
    (
        r"large constant array",
        "Pass the array as an argument of the compiled function.",
    ),
    (
        r"`\w+` at .* works on|values have no native rule|asks for another result type",
        "Use float32, float64, a 16-bit float, an integer or bool there.",
    ),
    (
        r"`\w+` at .* has no native rule",
        "Do it before or after the loop, for all steps at once, if it does not need "
        "the carry; otherwise the loop is XLA's.",
    ),
    (
        r"holds .* of values",
        "A smaller batch in a call, or jax.lax.map over parts of it, makes a step "
        "smaller; with large steps XLA's own kernels are not slower.",
    ),
    (
        r"weights do not fit|million|billion",
        "Nothing to do: in steps this large XLA's own kernels are as fast.",
    ),
    (
        r"the engine failed inside",
        'A fault of onescan: please report it; onescan.engine("xla") helps.',
    ),
    (r"llvmlite", "Install or repair llvmlite."),
    (r"no native engine for", "Use a CPU or an NVIDIA GPU."),
)


def advice(reason: str) -> str | None:
    """What the user can do, in a sentence.

    >>> advice("a loop of one step needs no loop")
    'Nothing to do: there is no loop to speed up.'
    """
    for words, what in ADVICE:
        if re.search(words, reason):
            return what
    return None
