from .cross_attention import with_cross_attention as with_cross_attention
from .lsg import to_lsg as to_lsg
from .lsg import with_lsg_options as with_lsg_options
from .positions import extend_positions as extend_positions
from .warm_start import warm_start as warm_start
