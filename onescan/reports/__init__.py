"""What became of every loop, told to a person."""
