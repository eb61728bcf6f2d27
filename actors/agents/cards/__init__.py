"""Knowledge cards: short verified pieces of kernel code that a request may show."""
