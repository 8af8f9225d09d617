"""Tasks, examples, batches and prepared shards; TensorFlow is imported inside functions only."""
