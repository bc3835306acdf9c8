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
    physics,
    ppo,
    processes,
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
    processes,
    physics,
    loops,
    issues,
)
PROGRAMS: list[Program] = [p for family in FAMILIES for p in family.PROGRAMS]
