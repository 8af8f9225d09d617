from .base import Tokenizer as Tokenizer
from .bytes import ByteTokenizer as ByteTokenizer
from .fast import JsonTokenizer as JsonTokenizer
from .loading import has_tokenizer as has_tokenizer
from .loading import load_tokenizer as load_tokenizer
from .sentencepiece import PegasusTokenizer as PegasusTokenizer
from .sentencepiece import SentencePieceTokenizer as SentencePieceTokenizer
from .train import train_sentencepiece as train_sentencepiece
