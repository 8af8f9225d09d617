"""Model directories in Hugging Face layout, on disk and on the Hub."""
