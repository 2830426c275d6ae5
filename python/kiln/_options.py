"""Options of builds, and what they are made of."""
