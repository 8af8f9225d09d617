from .attention.bigbird import bigbird_attention as bigbird_attention
from .attention.blocks import from_blocks as from_blocks
from .attention.blocks import to_blocks as to_blocks
from .attention.blockwise import attend_key_sets as attend_key_sets
from .attention.blockwise import attend_partially as attend_partially
from .attention.dense import QKV as QKV
from .attention.dense import dot_product_attention as dot_product_attention
from .attention.dense import masked_softmax as masked_softmax
from .attention.full import full_attention as full_attention
from .attention.fused import choose_kernel as choose_kernel
from .attention.fused import fused_attention as fused_attention
from .attention.hepos import mix_strided as mix_strided
from .attention.hepos import project_strided as project_strided
from .attention.hepos import strided_key_mask as strided_key_mask
from .attention.hepos import strided_length as strided_length
from .attention.key_sets import Dropout as Dropout
from .attention.key_sets import KeySet as KeySet
from .attention.key_sets import LazyBias as LazyBias
from .attention.key_sets import PartialSoftmax as PartialSoftmax
from .attention.key_sets import WeightDropout as WeightDropout
from .attention.key_sets import (
    merge_partial_softmaxes as merge_partial_softmaxes,
)
from .attention.local import local_attention as local_attention
from .attention.local import (
    transient_global_attention as transient_global_attention,
)
from .attention.longformer import longformer_attention as longformer_attention
from .attention.lsg import LsgSpec as LsgSpec
from .attention.lsg import lsg_attention as lsg_attention
from .attention.lsg import lsg_self_attention as lsg_self_attention
from .attention.lsg_selection import sparse_keys as sparse_keys
from .attention.relative_position import (
    relative_position_bucket as relative_position_bucket,
)
from .attention.staggered import (
    block_staggered_attention as block_staggered_attention,
)
from .losses import TokenScores as TokenScores
from .losses import class_cross_entropy as class_cross_entropy
from .losses import count_labels as count_labels
from .losses import shift_right as shift_right
from .losses import token_cross_entropy as token_cross_entropy
from .losses import token_scores as token_scores
from .masking import mask_tokens as mask_tokens
from .memory import compressive_update as compressive_update
from .memory import gated_update as gated_update
from .positions import sinusoidal_positions as sinusoidal_positions
from .remat import save_for_backward as save_for_backward
from .sequence_sharding import ByHead as ByHead
from .sequence_sharding import SequenceSharding as SequenceSharding
from .sequence_sharding import halo_exchange as halo_exchange
from .sequence_sharding import shard_map_heads as shard_map_heads
from .sequence_sharding import shard_map_sequence as shard_map_sequence
from .ssm.convolution import ssm_convolution as ssm_convolution
from .ssm.convolution import ssm_convolution_sharded as ssm_convolution_sharded
from .ssm.kernel import DiagonalSSM as DiagonalSSM
from .ssm.kernel import ssm_kernel as ssm_kernel
from .ssm.kernel import ssm_recurrence as ssm_recurrence
from .ssm.kernel import ssm_step as ssm_step
from .ssm.phases import cis as cis
