"""What a run can be trained for, one class a file."""
