"""A pytest plugin for JAX's own tests: every scan goes through onescan."""

import onescan

onescan.install()
