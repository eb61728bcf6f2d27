"""Laws of the second look: whom a doubt is given to, and what the second trial is told."""
