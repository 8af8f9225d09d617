"""The kinds of encoder attention; ``layers.encoder_attention`` lists them."""
