"""Stacks of layers: many blocks of one shape, run as one loop.

`stack` turns a list of layers into one tree of arrays with a leading axis of layers,
`unstack` takes it apart again, and `scan_layers` runs a block over all of them:

>>> import jax.numpy as jnp
>>> from onescan import layers
>>> params = layers.stack([{"w": jnp.eye(2) * n} for n in (1, 2, 3)])
>>> def block(layer, x):
...     x = layer["w"] @ x
...     return x, x.sum()
>>> x, sums = layers.scan_layers(block, params, jnp.ones(2))
>>> print(x, sums)
[6. 6.] [ 2.  4. 12.]
"""

from onescan.layers.body import split_key as split_key
from onescan.layers.remat import POLICIES as POLICIES
from onescan.layers.run import scan_layers as scan_layers
from onescan.layers.stacking import stack as stack
from onescan.layers.stacking import unstack as unstack

__all__ = ["POLICIES", "scan_layers", "split_key", "stack", "unstack"]
