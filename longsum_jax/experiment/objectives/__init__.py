"""The objectives of training, one class a file."""
