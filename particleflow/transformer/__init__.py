"""The transformer itself: real architecture, real weights, real text.

embedding    words to points and back              blocks       attention and feed-forward, with norms in their places
network      an embedding, a flow, an unembedding  loading      trained weights from a folder
"""

from particleflow.transformer.analysis import Depth, HeadSpectrum, along_depth, analogy, head_spectra
from particleflow.transformer.blocks import LayerParts, stacked
from particleflow.transformer.embedding import Embedding, Unembedding
from particleflow.transformer.loading import load
from particleflow.transformer.network import EncoderDecoder, Transformer
from particleflow.transformer.pictures import depth_figure
from particleflow.transformer.random_networks import Architecture, random_encoder_decoder, random_transformer
from particleflow.transformer.tokens import Tokenizer

__all__ = [
    "Architecture",
    "Depth",
    "Embedding",
    "EncoderDecoder",
    "HeadSpectrum",
    "LayerParts",
    "Tokenizer",
    "Transformer",
    "Unembedding",
    "along_depth",
    "analogy",
    "depth_figure",
    "head_spectra",
    "load",
    "random_encoder_decoder",
    "random_transformer",
    "stacked",
]


def __dir__() -> list[str]:
    return __all__
