"""The programs of the benchmark, one file for each family."""

from programs import (
    complex_numbers,
    decoding,
    inference,
    issues,
    lattices,
    libraries,
    loops,
    markov,
    ppo,
    states,
    training,
    waves,
)
from programs.program import Program

FAMILIES = (
    ppo,
    training,
    libraries,
    markov,
    inference,
    states,
    lattices,
    waves,
    complex_numbers,
    decoding,
    loops,
    issues,
)
PROGRAMS: list[Program] = [p for family in FAMILIES for p in family.PROGRAMS]
