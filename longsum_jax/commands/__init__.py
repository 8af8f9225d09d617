"""The commands, one file each, and their shared modules."""

# name -> description in ``longsum --help``
COMMANDS = {
    "train": "trains a model as a config file says, and resumes it",
    "summarize": "prints summaries of documents",
    "serve": "answers requests for summaries over HTTP",
    "evaluate": "summarizes a data set and scores the summaries",
    "score": "scores summaries that any system wrote, and compares systems",
    "judge": "lets people and chat models judge summaries, and reads what they found",
    "convert": "writes a model directory, with longer inputs or another attention",
    "plan": "compiles programs for a device that is not there, and prints what they take",
    "prepare": "writes the examples of a task to shards, for fast and exact reading",
    "extract": "chooses the important sentences of documents",
    "corpus": "describes data sets, and writes them as JSON lines",
    "verify": "compares files with their checksums, and lists files without one",
    "plots": "draws training curves, kernels, bigrams, studies and plans",
}
