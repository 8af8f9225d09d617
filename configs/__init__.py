"""Config files, one for each experiment; ``common`` holds what they share."""
