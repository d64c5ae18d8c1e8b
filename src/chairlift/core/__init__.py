"""The scheduler: pure, standard library only, with time as an argument."""
