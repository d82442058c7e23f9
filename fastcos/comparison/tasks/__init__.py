"""The tasks on which candidates are compared."""
