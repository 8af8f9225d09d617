from .document import Document as Document
from .document import Failure as Failure
from .document import Heading as Heading
from .reading import read_documents as read_documents
from .registry import KINDS as KINDS
from .source import ReadOptions as ReadOptions
