"""Pages of docs/results: for every file of benchmarks/results its tables, by subject."""
