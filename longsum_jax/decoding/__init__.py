"""Greedy, beam and sampled search over a decoder, with the options of transformers' generate."""
