"""Fit the polynomials of onescan/emit/math and print its coefficients.py.

Each fit is the polynomial of a given degree with the least weighted maximum error
(Remez exchange in 60 digits), so a weight of x**2 fits what is later multiplied by
x**2. Run: python scripts/fit_math.py > onescan/emit/math/coefficients.py
and then ruff format on that file.
"""

from collections.abc import Callable

from mpmath import mp, mpf

mp.dps = 60


def remez(f: Callable, low, high, degree: int, weight: Callable = lambda x: mpf(1)):
    """Coefficients, lowest first, and the error, of the best weighted fit."""
    low, high, count = mpf(low), mpf(high), degree + 2
    middle, half = (low + high) / 2, (high - low) / 2

    def nodes(n):
        # Never the ends themselves: f may be a removable singularity there.
        return [middle - half * mp.cos(mp.pi * (i + 0.5) / n) for i in range(n)]

    grid = nodes(12 * count)
    values = [(x, f(x), weight(x)) for x in grid]
    points = [values[12 * i + 6] for i in range(count)]
    for _ in range(30):
        rows = mp.matrix(count, count)
        right = mp.matrix(count, 1)
        for i, (x, fx, w) in enumerate(points):
            for k in range(degree + 1):
                rows[i, k] = ((x - middle) / half) ** k
            rows[i, degree + 1] = (-1) ** i / w
            right[i] = fx
        solution = mp.lu_solve(rows, right)
        scaled = list(solution)[: degree + 1]

        def error(x, fx, w, scaled=scaled):
            return w * (fx - mp.polyval(scaled[::-1], (x - middle) / half))

        errors = [error(*v) for v in values]
        # One extremum from each run of equal sign.
        best: list[int] = []
        for i, e in enumerate(errors):
            if best and (errors[best[-1]] > 0) == (e > 0):
                if abs(e) > abs(errors[best[-1]]):
                    best[-1] = i
            else:
                best.append(i)
        while len(best) > count:
            best.pop(0 if abs(errors[best[0]]) < abs(errors[best[-1]]) else -1)
        worst = max(abs(e) for e in errors)
        if len(best) < count or worst < abs(solution[degree + 1]) * mpf("1.02"):
            break
        points = [values[i] for i in best]
    # Back from the scaled variable to x.
    out = [mpf(0)] * (degree + 1)
    for k, c in enumerate(scaled):
        for j in range(k + 1):
            out[j] += c / half**k * mp.binomial(k, j) * (-middle) ** (k - j)
    return out, worst


def show(name: str, fits: dict[int, tuple]) -> None:
    """Print one constant: the fits by width of the float, with their errors."""
    lines = [f"{name} = {{"]
    for bits, (coefficients, error) in fits.items():
        lines.append(f"    # {bits} bits: error 2**{float(mp.log(error, 2)):.1f}")
        lines.append(f"    {bits}: (")
        lines += [f"        {float(c)!r}," for c in coefficients]
        lines.append("    ),")
    print("\n".join(lines + ["}"]))


def pieces(value, *bits: int) -> tuple[float, ...]:
    """`value` as a sum of numbers of so many bits each, the last one a full float."""
    out = []
    for n in bits:
        unit = mp.ldexp(1, int(mp.floor(mp.log(abs(value), 2))) - n + 1)
        piece = mp.floor(value / unit) * unit
        out.append(float(piece))
        value -= piece
    return (*out, float(value))


def show_pieces(name: str, by_width: dict[int, tuple[float, ...]]) -> None:
    lines = [f"    {bits}: {values!r}," for bits, values in by_width.items()]
    print("\n".join([f"{name} = {{", *lines, "}"]))


LN2 = mp.log(2)
EXP_END = LN2 / 2 + mpf("0.0005")


def taylor_safe(f: Callable, series: Callable):
    """f away from zero, its series near it, where f would cancel."""
    return lambda x: series(x) if abs(x) < mpf("1e-12") else f(x)


def constants() -> None:
    # The products of the first pieces with the n of a reduction are exact.
    show_pieces("LN2", {32: pieces(LN2, 15), 64: pieces(LN2, 41)})
    half_pi = mp.pi / 2
    show_pieces("HALF_PI_PAIR", {32: pieces(half_pi, 24), 64: pieces(half_pi, 53)})
    mp.prec = 1500
    bits = int(mp.floor(2 / mp.pi * mp.ldexp(1, 32 * 40)))
    words = [0, 0, *((bits >> 32 * (39 - i)) & 0xFFFFFFFF for i in range(40))]
    mp.dps = 60
    print("# The bits of 2 / pi after the point, behind 64 zeros.")
    print("TWO_OVER_PI = (")
    print("\n".join(f"    0x{word:08X}," for word in words) + "\n)")
    show_pieces(
        "HALF_PI", {32: pieces(half_pi, 13, 13, 13), 64: pieces(half_pi, 33, 33, 33)}
    )


def odd_rest(f: Callable, third, fifth):
    """z -> (f(x) / x - 1) / z at x = sqrt(z), f(x) = x + third x**3 + fifth x**5."""

    def rest(z):
        x = mp.sqrt(z)
        return (f(x) / x - 1) / z

    return taylor_safe(rest, lambda z: third + z * fifth)


def exponentials() -> None:
    # exp(r) = 1 + r + r**2 * EXP(r), |r| <= ln 2 / 2
    f = taylor_safe(lambda r: (mp.exp(r) - 1 - r) / r**2, lambda r: 0.5 + r / 6)
    w = lambda r: r**2 / mp.exp(r)
    ends = (-EXP_END, EXP_END)
    show("EXP", {32: remez(f, *ends, 4, w), 64: remez(f, *ends, 9, w)})
    # Computed in float64 for a float32 result.
    show("EXP_FOR_SINGLE", {64: remez(f, *ends, 5, w)})
    # The same for expm1, where the error counts against r.
    w = abs
    show("EXPM1", {32: remez(f, *ends, 4, w), 64: remez(f, *ends, 10, w)})
    # 2**r = 1 + r * EXP2(r), |r| <= 1/2
    f = taylor_safe(lambda r: (mp.power(2, r) - 1) / r, lambda r: LN2 + r * LN2**2 / 2)
    w = lambda r: r / mp.power(2, r)
    ends = (mpf("-0.5005"), mpf("0.5005"))
    show("EXP2", {32: remez(f, *ends, 5, w), 64: remez(f, *ends, 10, w)})


def logarithms() -> None:
    # log(1 + f) = f - f**2 / 2 + f**3 * LOG(f)
    f = taylor_safe(
        lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3, lambda f: mpf(1) / 3 - f / 4
    )
    ends = (mp.sqrt(0.5) - 1 - mpf("1e-6"), mp.sqrt(2) - 1 + mpf("1e-6"))
    single = remez(f, *ends, 7, lambda f: f**2)
    # log(1 + f) = 2 s + 2 s**3 * LOG(s**2), s = f / (2 + f)
    g = taylor_safe(
        lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z,
        lambda z: mpf(2) / 3 + z * 2 / 5,
    )
    s = ends[1] / (2 + ends[1])
    low, high, w = mpf("1e-20"), s**2, abs
    show("LOG", {32: single, 64: remez(g, low, high, 6, w)})
    show("LOG_FOR_SINGLE", {64: remez(g, low, high, 3, w)})
    # atanh(s) = s + s**3 / 3 + s**5 * ATANH_TAIL(s**2)
    g = taylor_safe(
        lambda z: ((mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z - mpf(1) / 3) / z,
        lambda z: mpf(1) / 5 + z / 7,
    )
    show("ATANH_TAIL", {64: remez(g, mpf("1e-20"), s**2, 7, lambda z: z**2)})


def circular() -> None:
    end = (mp.pi / 4 + mpf("0.001")) ** 2
    # sin(r) = r + r**3 * SIN(r**2), |r| <= pi / 4
    f = odd_rest(mp.sin, -mpf(1) / 6, mpf(1) / 120)
    low = mpf("1e-20")
    show("SIN", {n: remez(f, low, end, d, abs) for n, d in ((32, 2), (64, 5))})
    # cos(r) = 1 - r**2 / 2 + r**4 * COS(r**2)
    f = lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2
    f = taylor_safe(f, lambda z: mpf(1) / 24 - z / 720)
    w = lambda z: z**2
    show("COS", {n: remez(f, low, end, d, w) for n, d in ((32, 2), (64, 5))})
    # tan(r) = r + r**3 * TAN(r**2)
    f = odd_rest(mp.tan, mpf(1) / 3, mpf(2) / 15)
    show("TAN", {n: remez(f, low, end, d, abs) for n, d in ((32, 6), (64, 14))})
    # atan(t) = t + t**3 * ATAN(t**2), t <= 1
    f = odd_rest(mp.atan, -mpf(1) / 3, mpf(1) / 5)
    show("ATAN", {n: remez(f, low, 1, d, abs) for n, d in ((32, 8), (64, 20))})
    # asin(t) = t + t**3 * ASIN(t**2), t <= 1/2
    f = odd_rest(mp.asin, mpf(1) / 6, mpf(3) / 40)
    end = mpf("0.2501")
    show("ASIN", {n: remez(f, low, end, d, abs) for n, d in ((32, 4), (64, 12))})


def hyperbolic() -> None:
    # tanh(x) = x + x**3 * TANH(x**2), small x
    f = odd_rest(mp.tanh, -mpf(1) / 3, mpf(2) / 15)
    end = mpf("0.63") ** 2
    low = mpf("1e-20")
    show("TANH", {n: remez(f, low, end, d, abs) for n, d in ((32, 4), (64, 10))})
    # sinh(x) = x + x**3 * SINH(x**2), x <= 1
    f = odd_rest(mp.sinh, mpf(1) / 6, mpf(1) / 120)
    show("SINH", {n: remez(f, low, 1, d, abs) for n, d in ((32, 3), (64, 6))})


def roots() -> None:
    # m ** (-1/3) for m in [sqrt(1/2), sqrt(2)), a start for Newton's iteration
    f = lambda m: mp.power(m, -mpf(1) / 3)
    w = lambda m: mp.power(m, mpf(1) / 3)
    show("INVERSE_CBRT", {0: remez(f, mp.sqrt(0.5), mp.sqrt(2), 5, w)})


def error_function() -> None:
    # erf(x) = x + x * ERF(x**2), x <= 1
    f = lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1
    low = mpf("1e-20")
    show("ERF", {n: remez(f, low, 1, d) for n, d in ((32, 6), (64, 12))})
    # erf(x) = ERF_FAR(x - 5/2), 1 <= x <= 4
    far = lambda t: mp.erf(t + mpf("2.5"))
    show("ERF_FAR", {32: remez(far, -mpf("1.5"), mpf("1.5"), 13)})
    # erfc(x) = exp(-x**2) / (x + 1/2) * ERFC((x - k) / (x + k)), x from 1/2 to where
    # erfc is zero
    fits = {}
    for bits, k, end, degree in ((32, 2, 10.5, 9), (64, 4, 28, 20)):
        position = lambda q, k=k: k * (1 + q) / (1 - q)
        f = lambda q, p=position: erfcx(p(q)) * (p(q) + mpf("0.5"))
        start, end = (mpf("0.45") - k) / (mpf("0.45") + k), mpf(end - k) / (end + k)
        fits[bits] = remez(f, start, end, degree)
    show("ERFC", fits)
    # erf_inv(x) = x * ERF_INV(w), w = -log(1 - x**2), up to w = 2.25
    fits = {
        32: remez(inverse_ratio, low, 4.75, 10),
        64: remez(inverse_ratio, low, 4.75, 22),
    }
    show("ERF_INV", fits)
    # and x * (v + ERF_INV_FAR(v - middle)), v = sqrt(w), beyond: up to 16, and to the
    # last number before 1
    far = lambda start, end, middle, degree: remez(
        lambda t: inverse_ratio((t + middle) ** 2) - (t + middle),
        mp.sqrt(start) - middle,
        mp.sqrt(end) - middle,
        degree,
    )
    show("ERF_INV_FAR", {32: far(2.25, 17, 2.5, 14), 64: far(2.25, 16, 2.5, 31)})
    show("ERF_INV_EDGE", {64: far(16, 37.5, 5.0, 20)})


def inverse_ratio(w):
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x


def lost(value) -> float:
    return float(value - mpf(float(value)))


def gammas() -> None:
    # lgamma(2 + t) = t * LGAMMA(t), |t| <= 1/2
    f = lambda t: mp.loggamma(2 + t) / t if t else mp.digamma(2)
    ends = (-mpf("0.5"), mpf("0.5"))
    fits = {32: remez(f, *ends, 9), 64: remez(f, *ends, 18)}
    show("LGAMMA", fits)
    # What rounding takes from the first coefficient.
    print(f"LGAMMA_FIRST_LOW = {lost(fits[64][0][0])!r}")
    # lgamma(x) = (x - 1/2) log x - x + log(2 pi) / 2 + STIRLING(1 / x**2) / x
    root = mp.log(2 * mp.pi) / 2

    def rest(z):
        x = 1 / mp.sqrt(z)
        return (mp.loggamma(x) - (x - 0.5) * mp.log(x) + x - root) * x

    low = mpf("1e-6")
    end = 1 / mpf("6.5") ** 2
    show("STIRLING", {32: remez(rest, low, end, 2), 64: remez(rest, low, end, 8)})
    # digamma(x) = (x - root) * DIGAMMA(x - 3/2), 1 <= x <= 2
    zero = mp.findroot(mp.digamma, mpf("1.4616"))
    show_pieces("DIGAMMA_ROOT", {64: pieces(zero, 53)})

    def ratio(t):
        x = t + mpf("1.5")
        return mp.digamma(x) / (x - zero)

    fits = {32: remez(ratio, *ends, 11), 64: remez(ratio, *ends, 22)}
    show("DIGAMMA", fits)
    print(f"DIGAMMA_FIRST_LOW = {lost(fits[64][0][0])!r}")

    # digamma(x) = log x - 1 / (2 x) - DIGAMMA_FAR(1 / x**2) / x**2, x >= 3
    def far(z):
        x = 1 / mp.sqrt(z)
        return (mp.log(x) - 1 / (2 * x) - mp.digamma(x)) / z

    end = mpf(1) / 9
    fits = {n: remez(far, low, end, d, abs) for n, d in ((32, 4), (64, 12))}
    show("DIGAMMA_FAR", fits)


def erfcx(x):
    return mp.exp(x * x) * mp.erfc(x)


if __name__ == "__main__":
    print('"""Coefficients of the elementary functions, by width of the float.')
    print("\nWritten by scripts/fit_math.py, which says what each polynomial is.")
    print('"""\n')
    constants()
    exponentials()
    logarithms()
    circular()
    hyperbolic()
    roots()
    error_function()
    gammas()
