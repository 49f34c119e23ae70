"""Transformers as flows: trained or random weights, embedded texts, and what happens to tokens along depth.

embedding            token ids to points and back         layer_blocks        attention, feed-forward, their norms
network              embedding, flow of layers, head      random_networks     any architecture, random weights
token_flow           any flow between embedding and head  random_attention    softmax, linearised, near and far
saved_networks       weights that were trained here, kept in one file
loading              trained networks from a folder       checkpoint_files    reading and checking their tensors
checkpoint_layouts   BERT, DistilBERT and GPT-2           tokenizer           texts to token ids and back
segment_recurrence   long texts a segment at a time, with a memory of past states
depth_statistics     anisotropy, rank, spectra of heads   scenario_kinds      the kinds that scenario files name
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
