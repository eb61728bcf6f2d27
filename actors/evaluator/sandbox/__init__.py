"""How a child comes to be, what keeps it from the machine, and how it ends."""
