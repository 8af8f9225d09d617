from .attention.base import Context as Context
from .attention.base import EncoderAttention as EncoderAttention
from .attention.base import EncoderSelfAttention as EncoderSelfAttention
from .attention.bigbird import BigBirdAttention as BigBirdAttention
from .attention.cross import CrossAttention as CrossAttention
from .attention.cross import HeposAttention as HeposAttention
from .attention.cross import SourceAttention as SourceAttention
from .attention.full import FullAttention as FullAttention
from .attention.local import LocalAttention as LocalAttention
from .attention.local import (
    TransientGlobalAttention as TransientGlobalAttention,
)
from .attention.longformer import LongformerAttention as LongformerAttention
from .attention.lsg import LsgAttention as LsgAttention
from .attention.multi_head import ExtraKeyValues as ExtraKeyValues
from .attention.multi_head import MultiHeadAttention as MultiHeadAttention
from .attention.multi_head import RelativePositionBias as RelativePositionBias
from .attention.options import CrossAttentionOptions as CrossAttentionOptions
from .attention.options import (
    EncoderAttentionOptions as EncoderAttentionOptions,
)
from .attention.registry import CROSS_ATTENTIONS as CROSS_ATTENTIONS
from .attention.registry import ENCODER_ATTENTIONS as ENCODER_ATTENTIONS
from .attention.registry import get_cross_attention as get_cross_attention
from .attention.registry import get_encoder_attention as get_encoder_attention
from .attention.staggered import StaggeredAttention as StaggeredAttention
from .attention.standalone import HeposCrossAttention as HeposCrossAttention
from .attention.standalone import Lsg as Lsg
from .attention.state_space import StateSpaceAttention as StateSpaceAttention
from .chunking import map_over_length as map_over_length
from .decoder import Decoder as Decoder
from .decoder_cache import DecoderCache as DecoderCache
from .decoder_cache import DecoderSource as DecoderSource
from .decoder_cache import KeyValueCache as KeyValueCache
from .decoder_cache import LayerSource as LayerSource
from .decoder_layer import DecoderLayer as DecoderLayer
from .dense import FeedForward as FeedForward
from .dense import LayerNorm as LayerNorm
from .dense import Linear as Linear
from .dense import RMSNorm as RMSNorm
from .encoder import Encoder as Encoder
from .encoder import EncoderLayer as EncoderLayer
from .layer_groups import layer_params as layer_params
from .memory import AttentiveMemory as AttentiveMemory
from .memory import CompressiveMemory as CompressiveMemory
from .s4d import S4D as S4D
from .stack import MemoryOptions as MemoryOptions
from .stack import PageOptions as PageOptions
from .stack import StackConfig as StackConfig
