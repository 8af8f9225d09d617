"""Config files, one for each experiment, and their helpers in ``common``."""
