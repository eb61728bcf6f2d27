"""The modules that every package gets besides its winners; they are never imported here."""
