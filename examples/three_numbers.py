"""The smallest loop: scan through three numbers and watch every step.

`scan(f, init, xs)` calls `f(carry, x)` once for each element of `xs`.  `f` returns a
pair: the carry for the next step, and an output `y` for this one.  `scan` returns
the last carry and all the outputs, stacked.  It is this Python loop, compiled:

    carry, ys = init, []
    for x in xs:
        carry, y = f(carry, x)
        ys.append(y)
    return carry, np.stack(ys)

Run it with `python examples/three_numbers.py`.
"""

import onescan


def add(total, number):
    """Add the number to the total; give out the number plus two."""
    return total + number, number + 2


def main():
    total, outputs = onescan.scan(add, 0, [1, 2, 3])
    print(f"scan(add, 0, [1, 2, 3]) gives {total} and {outputs}\n")

    print("Step by step:\n")
    print(onescan.explain(add, 0, [1, 2, 3]))
    return total, outputs


if __name__ == "__main__":
    main()
