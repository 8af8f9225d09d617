from .decoder import CachedDecoder as CachedDecoder
from .decoder import Decoder as Decoder
from .options import GenerationOptions as GenerationOptions
from .search import Generated as Generated
from .search import generate as generate
from .search import trim as trim
