"""Everything that depends on the JAX version or on JAX's private modules.

No file outside of this folder imports `jax._src` or asks which JAX this is.
"""

from onescan.compat.equations import argument_names as argument_names
from onescan.compat.equations import array_type as array_type
from onescan.compat.equations import bind as bind
from onescan.compat.equations import keys_as_bits as keys_as_bits
from onescan.compat.equations import loop_of as loop_of
from onescan.compat.equations import physical as physical
from onescan.compat.equations import scalar_aval as scalar_aval
from onescan.compat.equations import scan_of as scan_of
from onescan.compat.equations import scan_params as scan_params
from onescan.compat.equations import stacked as stacked
from onescan.compat.equations import while_loop_of as while_loop_of
from onescan.compat.gpu import GPU_TARGET as GPU_TARGET
from onescan.compat.gpu import driver as driver
from onescan.compat.gpu import gpu as gpu
from onescan.compat.gpu import gpu_kernel_call as gpu_kernel_call
from onescan.compat.gpu import runs_on_gpu as runs_on_gpu
from onescan.compat.gpu import strings as strings
from onescan.compat.marks import INNER as INNER
from onescan.compat.marks import LEFT as LEFT
from onescan.compat.marks import MARK as MARK
from onescan.compat.marks import SETTING as SETTING
from onescan.compat.marks import added_axes as added_axes
from onescan.compat.marks import is_kept_from_us as is_kept_from_us
from onescan.compat.marks import left as left
from onescan.compat.marks import mark_of as mark_of
from onescan.compat.marks import marked as marked
from onescan.compat.marks import region_of as region_of
from onescan.compat.marks import traced_in_region as traced_in_region
from onescan.compat.marks import unmarked as unmarked
from onescan.compat.program import DEBUG_EFFECT as DEBUG_EFFECT
from onescan.compat.program import emit_host_call as emit_host_call
from onescan.compat.program import is_export as is_export
from onescan.compat.program import num_devices as num_devices
from onescan.compat.program import platform as platform
from onescan.compat.program import undo_point as undo_point
from onescan.compat.program import with_fresh_caches as with_fresh_caches
from onescan.compat.rules import Rule as Rule
from onescan.compat.rules import hide_frames as hide_frames
from onescan.compat.rules import is_of_a_scan as is_of_a_scan
from onescan.compat.rules import register_rules as register_rules
from onescan.compat.rules import register_seeing as register_seeing
from onescan.compat.rules import stock_rule as stock_rule
from onescan.compat.rules import stock_while_rule as stock_while_rule
from onescan.compat.settings import jit_disabled as jit_disabled
from onescan.compat.settings import versions as versions
from onescan.compat.settings import weak as weak
from onescan.compat.settings import x64_enabled as x64_enabled
from onescan.compat.sources import Position as Position
from onescan.compat.sources import expression_of as expression_of
from onescan.compat.sources import placed as placed
from onescan.compat.sources import positions_of as positions_of
from onescan.compat.sources import scope_of as scope_of
from onescan.compat.sources import source_of as source_of
