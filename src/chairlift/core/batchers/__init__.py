"""How a policy's choices become rows of a step, and how a step's outcome moves the sequences on."""
