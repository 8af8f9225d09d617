"""The commands, one file each, and their shared modules."""

# name -> description in ``longsum --help``
COMMANDS = {
    "train": "trains a model from a config file, and resumes training",
    "summarize": "prints summaries of documents",
    "serve": "answers requests for summaries over HTTP",
    "evaluate": "summarizes a data set and scores the summaries",
    "score": "scores summaries of any system, and compares systems",
    "judge": "collects judgements of summaries by people and chat models",
    "convert": "writes a model directory, with longer inputs or another attention",
    "push": "uploads a trained model to the Hugging Face Hub",
    "plan": "compiles programs ahead of time for TPUs or GPUs you don't have, and prints memory "
    "and time",
    "prepare": "writes the examples of a task to shards, for fast and exact reading",
    "extract": "extracts the most important sentences of documents",
    "corpus": "describes data sets, and writes them as JSON lines",
    "verify": "compares files with their checksums, and lists files without one",
    "plots": "draws training curves, kernels, bigrams, studies and plans",
}
