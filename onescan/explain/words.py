"""Numbers for people."""

from __future__ import annotations


def size(count: float) -> str:
    """Bytes: "512 B", "4.1 kB", "2.0 GB".

    >>> size(4100), size(13.5e9)
    ('4.1 kB', '13.5 GB')
    """
    if count < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        count /= 1000
        if count < 999.95 or unit == "TB":
            break
    return f"{count:,.1f} {unit}"


def number(count: float) -> str:
    """A count: "12", "4,096", "1.3 million".

    >>> number(12), number(4096), number(1.25e6)
    ('12', '4,096', '1.2 million')
    """
    if count < 100_000:
        return f"{count:,.0f}"
    for name, unit in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count / 1e3:,.0f} thousand"


def plural(count: float, one: str, many: str | None = None) -> str:
    """ "1 step", "3 steps".

    >>> plural(1, "step"), plural(3, "step")
    ('1 step', '3 steps')
    """
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """A part of a whole, "41%".

    >>> percent(0.412), percent(0.002)
    ('41%', 'under 1%')
    """
    return f"{share:.0%}" if share >= 0.01 else "under 1%"


def ratio(value: float) -> str:
    """So many for each, with two digits.

    >>> ratio(0.1234), ratio(2.13), ratio(514.5)
    ('0.12', '2.1', '514')
    """
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def times(value: float) -> str:
    """How often.

    >>> times(2.0), times(3.5)
    ('twice', '3.5 times')
    """
    return "twice" if value == 2 else f"{value:.2g} times"


def duration(seconds: float) -> str:
    """Seconds: "12 ns", "3.4 us", "1.2 ms".

    >>> duration(12e-9), duration(3.4e-6), duration(1.25)
    ('12 ns', '3.4 us', '1.2 s')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{ratio(seconds / scale)} {unit}"
    return f"{ratio(seconds / 1e-9)} ns"
