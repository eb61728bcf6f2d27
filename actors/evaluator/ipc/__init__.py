"""What the judge and its children say to each other, and the shapes that cross between them."""
