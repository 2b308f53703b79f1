"""openpipe-art's RULER as a peer: a process in an environment of its own, and what it is given."""
